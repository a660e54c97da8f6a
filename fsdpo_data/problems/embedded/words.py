"""The words of the embedded world: who, what, and how each relation is told and worked out."""

NAMES = (
    "Ali", "Amy", "Ana", "Ben", "Carl", "Dan", "Emma", "Eva", "Finn", "Grace", "Hana", "Ivan",
    "Jack", "Julia", "Ken", "Lena", "Leo", "Lucy", "Max", "Mia", "Nina", "Omar", "Paul", "Rosa",
    "Sam", "Sara", "Tom", "Vera", "Wei", "Zoe",
)  # fmt: skip

#: Every plural drops its "s" to become singular.
THINGS = (
    "apples", "balloons", "beads", "books", "buttons", "cards", "coins", "cookies", "eggs",
    "flowers", "marbles", "muffins", "pencils", "pens", "rocks", "seeds", "shells", "stamps",
    "stickers", "toys",
)  # fmt: skip

#: How a question tells each relation.
TELL: dict[str, tuple[str, ...]] = {
    "has": (
        "{who} has {n} {thing}.",
        "{who} starts the week with {n} {thing}.",
        "{who} keeps {n} {thing} in a jar.",
    ),
    "two kinds": (
        "{who} has {n} red {thing} and {m} blue {thing}.",
        "{who} has {n} small {thing} and {m} big {thing}.",
    ),
    "days": (
        "{who} collects {n} {thing} each day for {m} days.",
        "Every day {who} gets {n} {thing}. This goes on for {m} days.",
    ),
    "bags": (
        "{who} buys {m} bags with {n} {thing} in each bag.",
        "{who} gets {m} boxes. Each box holds {n} {thing}.",
    ),
    "gain": (
        "{who} finds {n} more {thing}.",
        "{friend} gives {who} {n} more {thing}.",
        "Then {who} buys {n} {thing}.",
    ),
    "lose": (
        "{who} gives {n} {thing} to {friend}.",
        "Then {who} loses {n} {thing}.",
        "{who} sells {n} of the {thing}.",
    ),
    "more bags": (
        "Then {who} buys {m} bags with {n} {thing} in each bag.",
        "{friend} brings {who} {m} boxes of {n} {thing}.",
    ),
    "use each": (
        "{who} gives {n} {thing} to each of {m} friends.",
        "{who} uses {n} {thing} for each of {m} cakes.",
    ),
    "half": (
        "{who} gives half of the {thing} to {friend}.",
        "Then {who} loses half of the {thing}.",
    ),
    "fraction": (
        "{who} gives {part} of the {thing} to {friend}.",
        "Then {who} sells {part} of the {thing}.",
    ),
    "grow": (
        "A month later {who} has {times} as many {thing}.",
        "By spring {who} has {times} as many {thing}.",
    ),
    "more than": ("{other} has {n} more {thing} than {who}.",),
    "fewer than": ("{other} has {n} fewer {thing} than {who}.",),
    "times": ("{other} has {times} as many {thing} as {who}.",),
    "ask": (
        "How many {thing} does {who} have now?",
        "How many {thing} does {who} have in the end?",
    ),
    "share": (
        "{who} shares the {thing} equally among {n} children. "
        "How many {thing} does each child get?",
        "{who} splits the {thing} into {n} equal piles. How many {thing} are in each pile?",
    ),
    "pack": (
        "{who} packs the {thing} into boxes of {n}. How many boxes does {who} fill?",
        "If {n} {thing} fit on a tray, how many trays does {who} need?",
    ),
    "sell": (
        "{who} sells all the {thing} for {n} dollars each. How many dollars does {who} get?",
        "If each {one} costs {n} dollars, how many dollars are the {thing} worth?",
    ),
    "sell and spend": (
        "{who} sells all the {thing} for {n} dollars each and spends {m} dollars on lunch. "
        "How many dollars are left?",
    ),
    "goal": (
        "{who} wants to have {n} {thing}. How many more {thing} does {who} need?",
        "How many {thing} are missing if {who} wants {n} {thing}?",
    ),
    "together": (
        "{other} has {n} more {thing} than {who}. How many {thing} do {who} and {other} have "
        "together?",
        "{other} has {n} more {thing} than {who}. How many {thing} do they have in total?",
    ),
}

#: How a solution says each step; ``{eq}`` is the written-out sum.
SAY: dict[str, tuple[str, ...]] = {
    "two kinds": ("{who} has {eq} {thing}.", "In total there are {eq} {thing}."),
    "days": ("{who} collects {eq} {thing}.", "Over the days that is {eq} {thing}."),
    "bags": ("The bags hold {eq} {thing}.", "{who} buys {eq} {thing}."),
    "gain": ("{who} now has {eq} {thing}.", "That makes {eq} {thing}."),
    "lose": ("{who} has {eq} {thing} left.", "That leaves {eq} {thing}."),
    "more bags": ("The new {thing} are {eq}.", "{who} gets {eq} more {thing}."),
    "use each": ("{who} needs {eq} {thing} for that.", "The {thing} that go are {eq}."),
    "half": ("Half of them is {eq} {thing}.", "{who} keeps {eq} {thing}."),
    "fraction": ("{who} parts with {eq} {thing}.", "The part that goes is {eq} {thing}."),
    "grow": ("{who} then has {eq} {thing}.", "They grow to {eq} {thing}."),
    "compare": ("{who} has {eq} {thing}.", "The number for {who} is {eq}."),
    "share": ("Each one gets {eq} {thing}.", "Each share is {eq} {thing}."),
    "pack": ("{who} needs {eq} of them.", "The number needed is {eq}."),
    "sell": ("The {thing} bring {eq} dollars.", "{who} gets {eq} dollars."),
    "spend": ("{who} has {eq} dollars left.", "That leaves {eq} dollars."),
    "goal": ("{who} needs {eq} more {thing}.", "The number missing is {eq} {thing}."),
    "together": ("Together they have {eq} {thing}.", "In total that is {eq} {thing}."),
}

#: Sentences whose number has nothing to do with the answer.
DISTRACTORS = (
    "{who} is {n} years old.",
    "{stranger} has {n} {thing} at home.",
    "The walk to school takes {n} minutes.",
    "There are {n} chairs in the room.",
    "Last year {stranger} had {n} {thing}.",
    "{stranger} lives {n} miles away.",
)

PARTS = {3: "a third", 4: "a quarter", 5: "a fifth"}
TIMES = {2: "twice", 3: "3 times", 4: "4 times", 5: "5 times"}
