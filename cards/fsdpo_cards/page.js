"use strict";
// Text of models goes through textContent, and formulas are created node by node. Nothing is parsed
// as markup.
const byId = (id) => document.getElementById(id);

const element = (tag, className, ...inside) => {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...inside);
  return made;
};

const address = () => new URLSearchParams(location.hash.slice(1));

// Writes names and values to the URL; empty values are removed.
const updateAddress = (values) => {
  const all = Object.entries({ ...Object.fromEntries(address()), ...values }).filter(([, value]) => value);
  history.replaceState(null, "", `#${new URLSearchParams(all)}`);
};

const browse = ({ problems, marks, shared, formulas, pattern }) => {
  const FORMULA = new RegExp(pattern, "g");
  const list = byId("list");
  // The state in the URL: filters, the problem, and the open solution.
  const chosen = { task: "", decoder: "", verdict: "", search: "", problem: "", sample: "" };
  let visible = [];
  let at = -1;
  let ready = false;

  const spoken = (status) => status.replace(/_/g, " ");
  const [kind, mark, word] = [0, 1, 2].map((part) => (status) => marks[status][part]);
  const verdictOf = (problem) => problem.verdict ?? problem.decoded[chosen.decoder]?.status ?? "gold_unparsed";
  const distinct = (values) => [...new Set(values.filter((value) => value !== undefined))].sort();
  const statuses = distinct(problems.flatMap((p) => [p.verdict, ...Object.values(p.decoded).map((each) => each.status)]));
  const count = (number) => number.toLocaleString("en");

  // Formulas

  const { namespaceURI } = byId("formula"); // a literal namespace URL would be a URL in the page
  const built = (tree) => {
    const made = document.createElementNS(namespaceURI, tree[0]);
    for (const each of tree.slice(1))
      if (Array.isArray(each)) made.append(built(each));
      else if (typeof each === "string") made.append(each);
      else for (const name of Object.keys(each)) made.setAttribute(name, each[name]);
    return made;
  };

  const formula = (written) => {
    if (!Object.hasOwn(formulas, written)) return written;
    const made = built(formulas[written]);
    made.setAttribute("title", written);
    return made;
  };

  const typeset = (text) => {
    const parts = [];
    let end = 0;
    for (const found of text.matchAll(FORMULA)) {
      parts.push(text.slice(end, found.index), formula(found[0]));
      end = found.index + found[0].length;
    }
    return [...parts, text.slice(end)];
  };

  const answered = (answer) => element("bdi", "", ...(formula(answer) === answer ? typeset(answer) : [formula(answer)]));
  const prose = (text) => element("p", "text", ...typeset(text.replace(/\n+$/, "")));

  // Filters

  const form = byId("filters");
  const groups = distinct(problems.flatMap((problem) => Object.keys(problem.groups)));
  const decoders = [...new Set(problems.flatMap((problem) => Object.keys(problem.decoded)))];
  const groupOf = (problem, name) => (Object.hasOwn(problem.groups, name) ? problem.groups[name] : undefined);

  const fillSelect = (name, values, label = (value) => value) => {
    const select = form.elements.namedItem(name);
    for (const value of values) select.append(new Option(label(value), value));
    if (!values.length) select.parentNode.hidden = true;
    select.addEventListener("change", () => {
      chosen[name] = select.value;
      refresh();
    });
  };

  const setUpFilters = () => {
    fillSelect("task", [...new Set(problems.map((problem) => problem.task))]);
    fillSelect("decoder", decoders);
    fillSelect("verdict", statuses, spoken);
    for (const group of groups) {
      const select = element("select");
      select.name = `in ${group}`;
      select.append(new Option("all", ""));
      form.lastElementChild.before(element("label", "", group, " ", select));
      chosen[select.name] = "";
      fillSelect(select.name, distinct(problems.map((problem) => groupOf(problem, group))));
    }
    form.elements.search.addEventListener("input", () => {
      chosen.search = form.elements.search.value;
      refresh();
    });
    form.addEventListener("submit", (event) => event.preventDefault());
  };

  const searched = (problem) =>
    [problem.id, problem.question, problem.gold, ...Object.values(problem.decoded).map((d) => d.answer)]
      .join("\n")
      .toLowerCase();

  const matches = (problem) =>
    (!chosen.task || problem.task === chosen.task) &&
    (!chosen.verdict || verdictOf(problem) === chosen.verdict) &&
    groups.every((name) => !chosen[`in ${name}`] || groupOf(problem, name) === chosen[`in ${name}`]) &&
    (!chosen.search || searched(problem).includes(chosen.search.toLowerCase()));

  // The URL

  const seen = new Map();
  for (const problem of problems) {
    const name = `${problem.task}/${problem.id}`;
    seen.set(name, (seen.get(name) ?? 0) + 1);
    problem.key = seen.get(name) === 1 ? name : `${name}/${seen.get(name)}`; // a question can occur twice
  }

  const remember = () => ready && updateAddress(chosen);

  const restore = () => {
    const told = address();
    if (!Object.keys(chosen).some((name) => told.has(name))) return false;
    for (const name of Object.keys(chosen)) {
      chosen[name] = told.get(name) ?? "";
      const field = form.elements.namedItem(name);
      if (!field) continue;
      field.value = chosen[name];
      if (field.tagName === "SELECT" && field.selectedIndex < 0) field.selectedIndex = 0;
      chosen[name] = field.value;
    }
    return true;
  };

  // List

  const item = (problem, index) => {
    const status = verdictOf(problem);
    const row = element("div", `item ${kind(status)}`);
    row.id = `item-${index}`;
    row.dataset.mark = mark(status);
    row.setAttribute("role", "option");
    row.setAttribute("aria-label", `${spoken(status)}: ${problem.question.slice(0, 120)}`);
    row.append(element("span", "", problem.question.slice(0, 200)));
    const inside = groups.map((name) => [name, groupOf(problem, name)]).filter(([, value]) => value);
    const said = inside.map(([name, value]) => (/^\d+$/.test(value) ? `${name} ${value}` : value));
    row.append(element("span", "where", [problem.task, ...said, problem.id].join(" · ")));
    row.addEventListener("click", () => open(index));
    return row;
  };

  const refresh = () => {
    visible = problems.filter(matches);
    list.replaceChildren(...visible.map(item));
    const known = Object.keys(marks).filter((status) => statuses.includes(status));
    const counts = new Map(known.map((status) => [word(status), 0]));
    for (const problem of visible) {
      const called = word(verdictOf(problem));
      counts.set(called, (counts.get(called) ?? 0) + 1);
    }
    const told = [...counts].filter(([called, number]) => number || called !== "not counted");
    byId("count").textContent =
      `${count(visible.length)} of ${count(problems.length)} problems; ` +
      (chosen.decoder && `${chosen.decoder}: `) +
      told.map(([called, number]) => `${count(number)} ${called}`).join(", ");
    at = -1;
    open(Math.max(0, visible.findIndex((problem) => problem.key === chosen.problem)));
  };

  const open = (index) => {
    if (at >= 0) byId(`item-${at}`)?.removeAttribute("aria-selected");
    if (!visible.length) {
      byId("detail").replaceChildren(element("p", "quiet", "No problem fits the filters."));
      remember();
      return;
    }
    at = Math.min(Math.max(index, 0), visible.length - 1);
    const problem = visible[at];
    if (problem.key !== chosen.problem && ready) chosen.sample = "";
    chosen.problem = problem.key;
    const row = byId(`item-${at}`);
    row.setAttribute("aria-selected", "true");
    list.setAttribute("aria-activedescendant", row.id);
    // Scroll only the list, not the page.
    const below = row.offsetTop + row.offsetHeight - list.clientHeight;
    list.scrollTop = Math.max(Math.min(list.scrollTop, row.offsetTop), below);
    showProblem(problem);
    remember();
  };

  // One problem

  const showProblem = (problem) => {
    const prompt = problem.prompt.map((part) => shared[part]).join(problem.question);
    const asked = element("details", "", element("summary", "", "Prompt as sent"), element("pre", "", prompt));
    const parts = [element("h3", "", "Question"), prose(problem.question), asked];
    parts.push(element("h3", "", "Gold answer"), element("p", "text", answered(problem.gold)));
    if (decoders.length) parts.push(element("h3", "", "Decoders"), verdictTable(problem));
    const decided = problem.decoded[chosen.decoder];
    const pairs = problem.pairs ?? (decided?.taken.length > 1 ? [decided] : []);
    if (pairs.length) parts.push(element("h3", "", "Side by side"), ...pairs.map((pair) => pairBox(problem, pair)));
    const boxes = problem.solutions.map((each, index) => solutionBox(problem, each, index));
    byId("detail").replaceChildren(...parts, element("h3", "", "Solutions"), ...boxes);
    const wanted = boxes.find((box, index) => problem.solutions[index].name === chosen.sample);
    if (wanted) reveal(wanted);
  };

  const badge = (status) =>
    element("span", `badge ${marks[status] ? kind(status) : "none"}`, `${marks[status] ? mark(status) : ""} ${spoken(status)}`);

  const verdictTable = (problem) => {
    const table = element("table", "verdicts");
    for (const [name, each] of Object.entries(problem.decoded)) {
      const row = table.insertRow();
      row.insertCell().append(name);
      row.insertCell().append(badge(each.status));
      if (each.answer !== undefined) row.insertCell().append(each.answer === null ? "no answer" : answered(each.answer));
      const cell = row.insertCell();
      for (const index of each.taken) {
        if (index === null) continue;
        const button = element("button", "link", problem.solutions[index].name);
        button.type = "button";
        button.addEventListener("click", () => {
          reveal(byId(`solution-${index}`));
          byId(`solution-${index}`).firstChild.focus();
        });
        cell.append(button, " ");
      }
    }
    return element("div", "wide", table);
  };

  const reveal = (box) => {
    box.open = true;
    box.scrollIntoView({ block: "nearest" });
  };

  // Hue from red (0) over yellow to green (130); the reward is also shown as a number.
  const shade = (reward) => `hsl(${Math.round(130 * Math.min(1, Math.max(0, reward)))} 70% 45%)`;

  const headOf = (solution) => {
    const told = [badge(solution.status), ` ${solution.name}`];
    if (solution.tokens) told.push(` · ${solution.tokens}`);
    for (const [column, value] of Object.entries(solution.columns ?? {})) told.push(` · ${column} ${value}`);
    return solution.finish === "stop" ? told : [...told, ` · ended by ${solution.finish}`];
  };

  const solutionBox = (problem, solution, index) => {
    const box = element("details", "solution");
    box.id = `solution-${index}`;
    const used = Object.keys(problem.decoded).filter((name) => problem.decoded[name].taken.includes(index));
    const aside = problem.pairs || problem.decoded[chosen.decoder]?.taken.length > 1;
    box.open = !aside && (used.includes(chosen.decoder) || problem.solutions.length === 1);
    const chosenBy = used.length && used[0] !== solution.name ? `, chosen by ${used.join(", ")}` : "";
    const head = element("summary", "", ...headOf(solution), chosenBy);
    head.addEventListener("click", () => {
      chosen.sample = box.open ? "" : solution.name;
      remember();
    });
    const why = element("p", "why", shared[solution.why]);
    if (solution.answer !== null) why.append(" Answer: ", answered(solution.answer));
    box.append(head, why, ...solution.steps.map((text, number) => stepRow(solution, number)));
    if (solution.hidden > 0) box.append(element("p", "why", `${count(solution.hidden)} more characters are left out.`));
    return box;
  };

  const stepRow = (solution, number, weight) => {
    if (number >= solution.steps.length) return element("div", "step");
    const reward = solution.rewards?.[number];
    const row = element("div", reward === undefined ? "step" : "step scored", prose(solution.steps[number]));
    const told = element("span", "reward", reward === undefined ? "" : reward.toFixed(2));
    if (reward !== undefined) {
      row.style.setProperty("--shade", shade(reward));
      told.setAttribute("aria-label", `reward ${reward.toFixed(2)}`);
    }
    const label = solution.labels?.[number];
    if (label !== undefined && label !== null) told.prepend(element("b", label ? "good" : "bad", label ? "+" : "−"), " ");
    if (weight !== undefined) told.append(element("small", "", `α ${weight.toFixed(2)}`));
    row.append(told);
    return row;
  };

  const pairBox = (problem, pair) => {
    const box = element("div", "beside");
    const sides = pair.taken.map((index) => problem.solutions[index]);
    if (sides.includes(undefined)) return element("p", "quiet", "A side is left out for size.");
    sides.forEach((each, side) => {
      const head = element("div", "head", ...(pair.sides ? [element("b", "", pair.sides[side]), " "] : []), ...headOf(each));
      if (each.answer !== null) head.append(" · ", answered(each.answer));
      box.append(head);
    });
    const most = Math.max(...sides.map((each) => each.steps.length));
    for (let number = 0; number < most; number += 1) {
      const rows = sides.map((each, side) => stepRow(each, number, pair.weights?.[side]?.[number]));
      if (sides[0].steps[number] === sides[1].steps[number]) for (const row of rows) row.classList.add("same");
      box.append(...rows);
    }
    return box;
  };

  // Keyboard

  const nextWrong = (direction) => {
    for (let i = at + direction; i >= 0 && i < visible.length; i += direction)
      if (kind(verdictOf(visible[i])) !== "right") return i;
    return at;
  };

  const keys = {
    j: () => open(at + 1),
    k: () => open(at - 1),
    n: () => open(nextWrong(1)),
    p: () => open(nextWrong(-1)),
    "/": () => form.elements.search.focus(),
  };
  const listKeys = {
    ArrowDown: () => open(at + 1),
    ArrowUp: () => open(at - 1),
    Home: () => open(0),
    End: () => open(visible.length - 1),
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const inList = document.activeElement === list;
    if (["INPUT", "SELECT"].includes(event.target.tagName)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const act = keys[event.key] || (inList && listKeys[event.key]);
    if (!act) return;
    event.preventDefault();
    act();
  });

  setUpFilters();
  chosen.decoder = decoders[0] ?? "";
  const linked = restore();
  refresh();
  ready = true;
  if (linked) byId("browser").scrollIntoView();
  window.addEventListener("hashchange", () => {
    ready = false;
    if (restore()) refresh();
    ready = true;
  });
};

// A click on a column header sorts the table; another click reverses the order. The URL keeps both.
const sortable = (table) => {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const value = (row, column) => row.cells[column].dataset.value ?? row.cells[column].textContent;

  const sort = (column, direction) => {
    // The difference of words is NaN.
    const compare = (a, b) => a - b || a.localeCompare(b, "en");
    const rows = [...body.rows].sort((a, b) => direction * compare(value(a, column), value(b, column)));
    body.append(...rows);
    heads.forEach((head, index) => head.setAttribute("aria-sort", index !== column ? "none" : direction > 0 ? "ascending" : "descending"));
  };

  heads.forEach((head, column) => {
    const button = element("button", "link", head.textContent);
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const direction = head.getAttribute("aria-sort") === "descending" ? 1 : -1;
      sort(column, direction);
      updateAddress({ sort: direction * (column + 1) });
    });
  });
  const kept = Number(address().get("sort"));
  if (heads[Math.abs(kept) - 1]) sort(Math.abs(kept) - 1, Math.sign(kept));
};

for (const table of document.querySelectorAll("table.sortable")) sortable(table);
const data = JSON.parse(byId("data").textContent);
if (byId("list")) browse(data);
