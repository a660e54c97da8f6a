"use strict";
// The list of problems. All text of models goes through textContent: none of it becomes markup.
(() => {
  const { problems, explanations } = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const chosen = { task: "", decoder: "", verdict: "", subject: "", level: "", search: "" };
  let visible = [];
  let at = -1;

  const element = (tag, className, text) => {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };

  const spoken = (status) => status.replace(/_/g, " ");
  const kind = (status) =>
    status === "correct" ? "right" : status === "gold_unparsed" ? "none" : "wrong";
  const mark = (status) => ({ right: "✓", wrong: "✗", none: "–" })[kind(status)];
  const verdictOf = (problem) => (problem.decoded[chosen.decoder] || { status: "gold_unparsed" }).status;
  const distinct = (values) => [...new Set(values.filter((value) => value !== undefined))].sort();

  // Filters

  const fillSelect = (id, values, label = (value) => value) => {
    for (const value of values) {
      const option = element("option", "", label(value));
      option.value = value;
      byId(id).append(option);
    }
    byId(id).addEventListener("change", () => {
      chosen[id] = byId(id).value;
      refresh();
    });
  };

  const setUpFilters = () => {
    const decoders = [];
    for (const problem of problems)
      for (const name of Object.keys(problem.decoded)) if (!decoders.includes(name)) decoders.push(name);
    const statuses = problems.flatMap((p) => Object.values(p.decoded).map((each) => each.status));
    fillSelect("task", [...new Set(problems.map((problem) => problem.task))]);
    fillSelect("decoder", decoders);
    fillSelect("verdict", distinct(statuses), spoken);
    chosen.decoder = decoders[0];
    for (const group of ["subject", "level"]) {
      const values = distinct(problems.map((problem) => problem[group]));
      fillSelect(group, values);
      byId(`${group}-label`).hidden = values.length === 0;
      if (values.length === 0) byId(`${group}-label`).style.display = "none";
    }
    byId("search").addEventListener("input", () => {
      chosen.search = byId("search").value.toLowerCase();
      refresh();
    });
    byId("filters").addEventListener("submit", (event) => event.preventDefault());
  };

  const searched = (problem) =>
    [problem.id, problem.question, problem.gold, ...Object.values(problem.decoded).map((d) => d.answer)]
      .join("\n")
      .toLowerCase();

  const matches = (problem) =>
    (!chosen.task || problem.task === chosen.task) &&
    (!chosen.verdict || verdictOf(problem) === chosen.verdict) &&
    (!chosen.subject || problem.subject === chosen.subject) &&
    (!chosen.level || problem.level === chosen.level) &&
    (!chosen.search || searched(problem).includes(chosen.search));

  // List

  const item = (problem, index) => {
    const status = verdictOf(problem);
    const row = element("div", `item ${kind(status)}`);
    row.id = `item-${index}`;
    row.dataset.mark = mark(status);
    row.setAttribute("role", "option");
    row.setAttribute("aria-label", `${spoken(status)}: ${problem.question.slice(0, 120)}`);
    row.append(element("span", "", problem.question));
    const level = problem.level && `level ${problem.level}`;
    const where = [problem.task, problem.subject, level, problem.id].filter(Boolean);
    row.append(element("span", "where", where.join(" · ")));
    row.addEventListener("click", () => open(index));
    return row;
  };

  const refresh = () => {
    const before = visible[at];
    visible = problems.filter(matches);
    byId("list").replaceChildren(...visible.map(item));
    const counts = { right: 0, wrong: 0, none: 0 };
    for (const problem of visible) counts[kind(verdictOf(problem))] += 1;
    byId("count").textContent =
      `${visible.length.toLocaleString("en")} of ${problems.length.toLocaleString("en")} problems; ` +
      `${chosen.decoder}: ${counts.right} correct, ${counts.wrong} wrong` +
      (counts.none ? `, ${counts.none} not counted` : "");
    at = -1;
    open(Math.max(0, visible.indexOf(before)));
  };

  const open = (index) => {
    if (at >= 0) byId(`item-${at}`)?.removeAttribute("aria-selected");
    if (!visible.length) {
      byId("detail").replaceChildren(element("p", "quiet", "No problem fits the filters."));
      return;
    }
    at = Math.min(Math.max(index, 0), visible.length - 1);
    const row = byId(`item-${at}`);
    row.setAttribute("aria-selected", "true");
    byId("list").setAttribute("aria-activedescendant", row.id);
    const list = byId("list");
    if (row.offsetTop < list.scrollTop) list.scrollTop = row.offsetTop;
    const below = row.offsetTop + row.offsetHeight - list.clientHeight;
    if (below > list.scrollTop) list.scrollTop = below;
    showProblem(visible[at]);
  };

  // One problem

  const showProblem = (problem) => {
    const solutions = problem.solutions.map((each, index) => solutionBox(problem, each, index));
    byId("detail").replaceChildren(
      element("h3", "", "Question"),
      element("p", "text", problem.question),
      element("h3", "", "Gold answer"),
      element("p", "text", problem.gold),
      element("h3", "", "Decoders"),
      verdictTable(problem),
      element("h3", "", "Solutions"),
      ...solutions,
    );
  };

  const badge = (status) =>
    element("span", `badge ${kind(status)}`, `${mark(status)} ${spoken(status)}`);

  const verdictTable = (problem) => {
    const table = element("table", "verdicts");
    for (const [name, each] of Object.entries(problem.decoded)) {
      const row = table.insertRow();
      row.insertCell().textContent = name;
      row.insertCell().append(badge(each.status));
      row.insertCell().textContent = each.answer === null ? "no answer" : each.answer;
      const link = row.insertCell();
      if (each.solution === null || !problem.solutions[each.solution]) continue;
      const button = element("button", "link", problem.solutions[each.solution].name);
      button.type = "button";
      button.addEventListener("click", () => {
        const box = byId(`solution-${each.solution}`);
        box.open = true;
        box.scrollIntoView({ block: "nearest" });
        box.firstChild.focus();
      });
      link.append(button);
    }
    return table;
  };

  // Hue from red (0) over yellow to green (130); the number stands beside it.
  const shade = (reward) => `hsl(${Math.round(130 * reward)} 70% 45%)`;

  const solutionBox = (problem, solution, index) => {
    const box = element("details", "solution");
    box.id = `solution-${index}`;
    const used = Object.keys(problem.decoded).filter((name) => problem.decoded[name].solution === index);
    box.open = used.includes(chosen.decoder) || problem.solutions.length === 1;
    const head = element("summary");
    const chosenBy = used.length && used[0] !== solution.name ? `, taken by ${used.join(", ")}` : "";
    head.append(badge(solution.status), ` ${solution.name}${chosenBy} · ${solution.tokens}`);
    if (solution.finish !== "stop") head.append(` · ended by ${solution.finish}`);
    const answer = solution.answer === null ? "" : ` Answer: ${solution.answer}`;
    box.append(head, element("p", "why", explanations[`${solution.status} ${solution.rule}`] + answer));
    solution.steps.forEach((text, number) => box.append(stepRow(text, solution.rewards?.[number])));
    if (solution.hidden > 0)
      box.append(element("p", "why", `${solution.hidden.toLocaleString("en")} more characters are left out.`));
    return box;
  };

  const stepRow = (text, reward) => {
    const row = element("div", reward === undefined ? "step" : "step scored");
    row.append(element("p", "text", text.replace(/\n+$/, "")));
    const number = element("span", "reward", reward === undefined ? "" : reward.toFixed(2));
    if (reward !== undefined) {
      row.style.setProperty("--shade", shade(reward));
      number.setAttribute("aria-label", `reward ${reward.toFixed(2)}`);
    }
    row.append(number);
    return row;
  };

  // Keyboard

  const nextWrong = (direction) => {
    for (let i = at + direction; i >= 0 && i < visible.length; i += direction)
      if (kind(verdictOf(visible[i])) === "wrong") return i;
    return at;
  };

  const keys = {
    j: () => open(at + 1),
    k: () => open(at - 1),
    n: () => open(nextWrong(1)),
    p: () => open(nextWrong(-1)),
    "/": () => byId("search").focus(),
  };
  const listKeys = {
    ArrowDown: () => open(at + 1),
    ArrowUp: () => open(at - 1),
    Home: () => open(0),
    End: () => open(visible.length - 1),
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const inList = document.activeElement === byId("list");
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
  refresh();
})();
