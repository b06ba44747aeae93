"""A list of projects with one fault each, and the message of `ondatra validate`: the place, the fault, the remedy.

Where a message ends in a list of all allowed words, only its beginning is given.
"""

from collections.abc import Mapping
from typing import NamedTuple

PUSH = "def push(rows):\n    return {}\n"
MODEL = "-- @sink: crm\nSELECT 1 AS id\n"


class InvalidProject(NamedTuple):
    name: str
    files: Mapping[str, str | bytes]
    message: str


def invalid_model(name: str, text: str, message: str) -> InvalidProject:
    """Return a project with a fault in a model and a correct push function."""
    return InvalidProject(name, {"models/a/b.sql": text, "lib/crm.star": PUSH}, message)


def invalid_sink(name: str, text: str, message: str) -> InvalidProject:
    """Return a project with a fault in a push function, or in how a model uses it."""
    return InvalidProject(name, {"models/a/b.sql": MODEL, "lib/crm.star": text}, message)


def invalid_settings(name: str, text: str, message: str) -> InvalidProject:
    return InvalidProject(name, {"pyproject.toml": text, "models/a/b.sql": MODEL, "lib/crm.star": PUSH}, message)


def invalid_files(name: str, files: Mapping[str, str | bytes], message: str) -> InvalidProject:
    return InvalidProject(name, files, message)


INVALID_PROJECTS = (
    invalid_model(
        "a kind that isn't",
        "-- @kind: merg\nSELECT 1 AS id\n",
        "models/a/b.sql:1: @kind 'merg' is not a kind; did you mean 'merge'? the kinds are",
    ),
    invalid_model(
        "a header that isn't",
        "-- @kind: table\n-- @descripton: x\nSELECT 1 AS id\n",
        "models/a/b.sql:2: @descripton is not a header; did you mean 'description'? the words are",
    ),
    invalid_model(
        "no key",
        "-- @kind: merge\nSELECT 1 AS id\n",
        "models/a/b.sql:1: kind merge needs a key; add -- @unique_key: column",
    ),
    invalid_model(
        "a key too many",
        "-- @unique_key: id\nSELECT 1 AS id\n",
        "models/a/b.sql:1: kind table has no @unique_key; remove it, or choose a kind with a key",
    ),
    invalid_model(
        "two keys that say the same",
        "-- @kind: tracked\n-- @unique_key: id\n-- @group_key: id\nSELECT 1 AS id\n",
        "models/a/b.sql:2: @group_key and @unique_key mean the same for kind tracked; keep one of them",
    ),
    invalid_model(
        "a header twice",
        "-- @kind: table\n-- @kind: table\nSELECT 1 AS id\n",
        "models/a/b.sql:2: @kind is already on line 1; keep one of the two",
    ),
    invalid_model(
        "a header without a value",
        "-- @description\nSELECT 1 AS id\n",
        "models/a/b.sql:1: @description says nothing; write -- @description: value",
    ),
    invalid_model(
        "a header below the query",
        "SELECT 1 AS id\n-- @kind: merge\n",
        "models/a/b.sql:2: @kind is below the query; move it above",
    ),
    invalid_files(
        "a sink that isn't",
        {"models/a/b.sql": "-- @sink: crm_psh\nSELECT 1 AS id\n", "lib/crm_push.star": PUSH},
        ("models/a/b.sql:1: @sink 'crm_psh' has no lib/crm_psh.star; did you mean 'crm_push'? the sinks are"),
    ),
    invalid_files(
        "a sink that can't be read",
        {"models/a/b.sql": "-- @sink: crm_push(x)\nSELECT 1 AS id\n", "lib/crm_push.star": PUSH},
        ("models/a/b.sql:1: @sink 'crm_push(x)' can't be read; write @sink: name or @sink: name('text', 'text')"),
    ),
    invalid_model(
        "a sync id without a sink",
        "-- @sync_id: x\nSELECT 1 AS id\n",
        "models/a/b.sql:1: @sync_id has no @sink; add -- @sink: name, or remove it",
    ),
    invalid_files(
        "two syncs of one id",
        {
            "models/a/b.sql": "-- @sink: crm\n-- @sync_id: X\nSELECT 1 AS id\n",
            "models/a/c.sql": "-- @sink: crm\n-- @sync_id: x\nSELECT 1 AS id\n",
            "lib/crm.star": PUSH,
        },
        "models/a/c.sql:1: sync id 'x' is also that of models/a/b.sql; give it another @sync_id",
    ),
    invalid_model(
        "a sync id that no folder can have",
        "-- @sink: crm\n-- @sync_id: a/b\nSELECT 1 AS id\n",
        "models/a/b.sql:2: @sync_id 'a/b' can't be a sync's id; use up to 100 of A-Z a-z 0-9 . _ -",
    ),
    invalid_model(
        "an owner that Dagster doesn't take",
        "-- @owner: anna\nSELECT 1 AS id\n",
        "models/a/b.sql:1: @owner 'anna' is neither; write an e-mail address or team:name",
    ),
    invalid_model(
        "a tag that Dagster doesn't take",
        "-- @tag: a b\nSELECT 1 AS id\n",
        ("models/a/b.sql:1: @tag 'a b' is not a tag; write name or name=value, each up to 63 of A-Z a-z 0-9 . _ -"),
    ),
    invalid_model(
        "a column without a description",
        "-- @column: id the key\nSELECT 1 AS id\n",
        "models/a/b.sql:1: @column 'id the key' has no description; write @column: name = what it holds",
    ),
    invalid_model(
        "a key that is no column",
        "-- @kind: merge\n-- @unique_key: idd\nSELECT 1 AS id\n",
        "models/a/b.sql:2: the query has no column 'idd'; did you mean 'id'? the columns are",
    ),
    invalid_model(
        "a check of no column",
        "-- @constraint: amuont > 0\nSELECT 1 AS amount\n",
        "models/a/b.sql:1: the query has no column 'amuont'; did you mean 'amount'? the columns are",
    ),
    invalid_model(
        "a check that ends too early",
        "-- @audit: amount >\nSELECT 1 AS amount\n",
        "models/a/b.sql:1: 'amount >' can't be parsed; write one condition, such as amount >= 0",
    ),
    invalid_model(
        "a limit in words",
        "-- @sink: crm\n-- @max_rejects: few\nSELECT 1 AS id\n",
        "models/a/b.sql:2: 'few' is not a limit; write a number of rows, 10, or a percentage, 5%",
    ),
    invalid_model(
        "a time in words",
        "-- @sink: crm\n-- @max_lag: 1 day\nSELECT 1 AS id\n",
        "models/a/b.sql:2: '1 day' is not a length of time; write 30m, 24h or 7d",
    ),
    invalid_model(
        "no query", "-- @kind: table\n", "models/a/b.sql:2: there is no query; write a SELECT below the header"
    ),
    invalid_model(
        "two statements",
        "SELECT 1 AS id;\nSELECT 2 AS id\n",
        "models/a/b.sql:2: a second statement begins here; keep one SELECT in a file",
    ),
    invalid_files(
        "a parenthesis that stays open",
        {"models/a/b.sql": "SELECT id\nFROM a.c\nWHERE (id > 1\n", "models/a/c.sql": "SELECT 1 AS id"},
        "models/a/b.sql:3: the SQL can't be parsed: Expecting ) at '1'; correct it there",
    ),
    invalid_files(
        "a comma too many",
        {"models/a/b.sql": "SELECT id,,\nFROM a.c\n", "models/a/c.sql": "SELECT 1 AS id"},
        "models/a/b.sql:1: nothing follows ','; write what is missing there",
    ),
    invalid_model(
        "a quote that stays open",
        "SELECT 1 AS id,\n 'abc AS name\n",
        ("models/a/b.sql:2: the query can't be read to its end; close the quote or comment that is still open"),
    ),
    invalid_model(
        "no SELECT", "INSERT INTO a.c SELECT 1\n", "models/a/b.sql:1: INSERT is not a query; write one SELECT"
    ),
    invalid_files(
        "an input that nothing makes",
        {"models/a/b.sql": "SELECT *\nFROM a.cc\n", "models/a/c2.sql": "SELECT 1 AS id"},
        "models/a/b.sql:2: nothing makes a.cc; did you mean a.c2?",
    ),
    invalid_files(
        "an input without its schema",
        {"models/a/b.sql": "SELECT *\nFROM c\n", "models/a/c.sql": "SELECT 1 AS id"},
        "models/a/b.sql:2: 'c' is not an input; did you mean a.c?",
    ),
    invalid_model(
        "an input in a catalog",
        "SELECT *\nFROM main.crm.deals\n",
        (
            "models/a/b.sql:2: 'main.crm.deals' is not an input; "
            "give its schema a name in [tool.ondatra.sources] and read it as name.table"
        ),
    ),
    invalid_files(
        "a cycle of three",
        {
            "models/a/b.sql": "SELECT *\nFROM a.c\n",
            "models/a/c.sql": "SELECT * FROM a.d\n",
            "models/a/d.sql": "SELECT * FROM a.b\n",
        },
        "models/a/b.sql:2: a cycle: a.b reads a.c reads a.d reads a.b; remove one of these inputs",
    ),
    invalid_model(
        "a model that reads itself",
        "SELECT * FROM a.b\n",
        "models/a/b.sql:1: a cycle: a.b reads a.b; remove one of these inputs",
    ),
    invalid_files(
        "two models of one name",
        {"models/a/b.sql": "SELECT 1 AS id\n", "models/A/B.sql": "SELECT 1 AS id\n"},
        "models/a/b.sql:1: models/A/B.sql is the same model; rename one of them",
    ),
    invalid_files(
        "two names that Dagster takes for one",
        {"models/a/b__c.sql": "SELECT 1 AS id\n", "models/a__b/c.sql": "SELECT 1 AS id\n"},
        "models/a__b/c.sql:1: models/a/b__c.sql is the same name in Dagster; rename one of them",
    ),
    invalid_files(
        "a model two folders deep",
        {"models/a/b/c.sql": "SELECT 1 AS id\n"},
        "models/a/b/c.sql:1: a model is exactly one folder deep; move it to models/FOLDER/NAME.sql",
    ),
    invalid_files(
        "a model in no folder",
        {"models/c.sql": "SELECT 1 AS id\n"},
        "models/c.sql:1: a model is exactly one folder deep; move it to models/FOLDER/NAME.sql",
    ),
    invalid_files(
        "a name with a space",
        {"models/a/my model.sql": "SELECT 1 AS id\n"},
        ("models/a/my model.sql:1: 'my model' can't be part of a model's name; rename it with A-Z a-z 0-9 _"),
    ),
    invalid_files(
        "a folder with a reserved name",
        {"models/csv/a.sql": "SELECT 1 AS id\n"},
        ("models/csv/a.sql:1: 'csv' can't be a folder of models; rename it: the word is reserved"),
    ),
    invalid_files(
        "a name of rows that were set aside",
        {"models/a/b__invalid.sql": "SELECT 1 AS id\n"},
        ("models/a/b__invalid.sql:1: a model can't end in __invalid; rename it: such tables hold invalid rows"),
    ),
    invalid_model(
        "a column of Delta's",
        "SELECT 1 AS id,\n 2 AS _change_type\n",
        "models/a/b.sql:2: a column can't be called '_change_type'; rename it with AS",
    ),
    invalid_model(
        "a column twice",
        "SELECT 1 AS id, 2 AS ID\n",
        "models/a/b.sql:1: column 'ID' is a duplicate; rename one of them with AS",
    ),
    invalid_files(
        "an input in hiding",
        {"models/a/b.sql": "SELECT * FROM identifier('a.c')\n", "models/a/c.sql": "SELECT 1 AS id"},
        "models/a/b.sql:1: IDENTIFIER() hides what is read; write the table's name itself",
    ),
    invalid_files(
        "an input of another time",
        {"models/a/b.sql": "SELECT * FROM a.c VERSION AS OF 3\n", "models/a/c.sql": "SELECT 1 AS id"},
        "models/a/b.sql:1: inputs are read at their newest version; remove VERSION or TIMESTAMP AS OF",
    ),
    invalid_files(
        "options of a model",
        {"models/a/b.sql": "SELECT * FROM a.c WITH ('header' = 'true')\n", "models/a/c.sql": "SELECT 1 AS id"},
        "models/a/b.sql:1: a.c can't have options; remove WITH (…): it is for files",
    ),
    invalid_files(
        "options without values",
        {"models/a/b.sql": "SELECT * FROM csv.`x.csv` WITH ('header')\n", "x.csv": ""},
        "models/a/b.sql:1: these options can't be read; write WITH ('name' = 'value', …)",
    ),
    invalid_files(
        "a model in Latin-1",
        {"models/a/b.sql": b"-- x\nSELECT '\xe9' AS id\n"},
        "models/a/b.sql:2: the file is not UTF-8; save it as UTF-8",
    ),
    invalid_settings(
        "a setting that isn't",
        '[tool.ondatra]\nsink = "on"\n',
        "pyproject.toml:2: 'sink' is not a setting; did you mean 'sinks'? the settings are",
    ),
    invalid_settings(
        "a setting that has other values",
        '[tool.ondatra]\nsinks = "maybe"\n',
        "pyproject.toml:2: sinks can't be 'maybe'; the choices are",
    ),
    invalid_settings(
        "no TOML",
        '[tool.ondatra]\nsinks "on"\n',
        "pyproject.toml:2: it isn't TOML: Expected '=' after a key in a key/value pair; correct the line",
    ),
    invalid_settings(
        "a text that stays open",
        '[tool.ondatra]\nsinks = "on\n',
        "pyproject.toml:2: it isn't TOML: Illegal character '\\n'; correct the line",
    ),
    invalid_files(
        "a source and a folder of one name",
        {
            "models/crm/b.sql": "SELECT 1 AS id\n",
            "pyproject.toml": '[tool.ondatra]\n[tool.ondatra.sources]\ncrm = "main.crm"\n',
        },
        "pyproject.toml:3: [tool.ondatra.sources] 'crm' is also models/crm; rename the source",
    ),
    invalid_settings(
        "two sources of one name",
        '[tool.ondatra.sources]\ncrm = "main.crm"\nCRM = "main.crm"\n',
        "pyproject.toml:1: two sources differ only in case; rename one of them",
    ),
    invalid_settings(
        "a source with a space",
        '[tool.ondatra.sources]\n"my crm" = "main.crm"\n',
        "pyproject.toml:1: a source can't be called 'my crm'; use letters, digits and _",
    ),
    invalid_files("an .env in Latin-1", {".env": b"A=\xe9\n"}, ".env:1: the file is not UTF-8; save it as UTF-8"),
    invalid_files(
        "no models",
        {"lib/x.star": PUSH},
        "models:1: there is no such folder; change into a project, or create one: ondatra init DIR",
    ),
    invalid_sink(
        "a brace that stays open",
        "def push(rows):\n    return {\n",
        "lib/crm.star:2: can't be read: '{' was never closed; correct the line",
    ),
    invalid_sink(
        "a body that isn't indented",
        "def push(rows):\nreturn {}\n",
        (
            "lib/crm.star:2: can't be read: expected an indented block after function definition on line 1; "
            "correct the line"
        ),
    ),
    invalid_sink(
        "no push()",
        "def psh(rows):\n    return {}\n",
        "lib/crm.star:1: has no push(); write def push(rows): … at the top level of the file",
    ),
    invalid_sink(
        "a key of API that isn't",
        'API = {\n    "base_ulr": "https://x.example",\n}\n' + PUSH,
        "lib/crm.star:2: 'base_ulr' is not a key of API; did you mean 'base_url'? the keys here are",
    ),
    invalid_sink(
        "a key of push that isn't",
        'API = {"push": {\n    "batchsize": 3,\n}}\n' + PUSH,
        ("lib/crm.star:2: 'batchsize' is not a key of \"push\"; did you mean 'batch_size'? the keys here are"),
    ),
    invalid_sink(
        "a number in quotes",
        'API = {\n    "timeout": "30",\n}\n' + PUSH,
        "lib/crm.star:2: '30' is not a number of at least 0.001; write a number of at least 0.001",
    ),
    invalid_sink(
        "a name in API",
        'URL = "https://x"\nAPI = {\n    "base_url": URL,\n}\n' + PUSH,
        (
            "lib/crm.star:3: URL is not a literal; write the value itself: "
            'nothing is run to read it; a secret is {"env": "NAME"}'
        ),
    ),
    invalid_sink(
        "a secret in API",
        'API = {\n    "auth": {"env": "KEY", "pass": "hunter2"},\n}\n' + PUSH,
        'lib/crm.star:2: the file contains a secret; name the variable that holds it: {"env": "NAME"}',
    ),
    invalid_sink(
        "an address without https",
        'API = {"base_url": "api.example.com"}\n' + PUSH,
        (
            "lib/crm.star:1: 'api.example.com' is not an address like 'https://api.example.com',"
            " without '?', '#' and user; write an address like"
        ),
    ),
    invalid_sink(
        "a batch mode that isn't",
        'API = {"push": {"batch_mode": "syn"}}\n' + PUSH,
        "lib/crm.star:1: 'syn' is not one of the batch modes; did you mean 'sync'? the batch modes are",
    ),
    invalid_sink(
        "half a rate limit",
        'API = {"rate_limit": {"requests": 100}}\n' + PUSH,
        'lib/crm.star:1: "rate_limit" has no per; write {"requests": 100, "per": "10s"}',
    ),
    invalid_sink(
        "an API that is a list",
        'API = ["x"]\n' + PUSH,
        'lib/crm.star:1: API is not a dict of literals; write it as {"key": value, …}',
    ),
    invalid_files(
        "a load() of no file",
        {
            "models/a/b.sql": MODEL,
            "lib/crm.star": 'load("commn.star", "f")\n' + PUSH,
            "lib/common.star": "def f():\n    pass\n",
        },
        "lib/crm.star:1: there is no 'commn.star' in lib/; correct the name in load()",
    ),
    invalid_files(
        "a load() of no name",
        {
            "models/a/b.sql": MODEL,
            "lib/crm.star": 'load("common.star", "g")\n' + PUSH,
            "lib/common.star": "def f():\n    pass\n",
        },
        "lib/crm.star:1: 'common.star' has no 'g' to load; the names there are",
    ),
    invalid_sink(
        "a load() from elsewhere",
        '\nload("../x.star", "f")\n' + PUSH,
        "lib/crm.star:2: '../x.star' can't be loaded; load a .star file of lib/ by its name",
    ),
    invalid_files(
        "a load() in a circle",
        {
            "models/a/b.sql": MODEL,
            "lib/crm.star": 'load("o.star", "f")\n' + PUSH,
            "lib/o.star": 'load("crm.star", "push")\nf = 1\n',
        },
        "lib/o.star:1: loading 'crm.star' loads this file again; remove the cycle of load()s",
    ),
    invalid_files(
        "a fault in a file that is loaded",
        {
            "models/a/b.sql": MODEL,
            "lib/crm.star": 'load("o.star", "f")\n' + PUSH,
            "lib/o.star": "def f():\n    while True:\n        pass\n",
        },
        "lib/o.star:2: cannot use reserved keyword `while`; `ondatra docs push-functions` says what Starlark has",
    ),
    invalid_sink(
        "a parameter that nothing fills",
        "def push(rows, batch_nr):\n    return {}\n",
        (
            "lib/crm.star:1: push() has a parameter 'batch_nr' that nothing fills; "
            "did you mean 'batch_number'? the parameters are"
        ),
    ),
    invalid_sink(
        "parameters by place",
        "def push(*rows):\n    return {}\n",
        ("lib/crm.star:1: push() has positional parameters; parameters are matched by name: leave out '*' and '/'"),
    ),
    invalid_sink(
        "a name that nobody defines",
        "def push(rows):\n    return {key(row): 'ok' for row in rows}\n",
        "lib/crm.star:2: nothing is called 'key' here; define it, or load it from a file of lib/",
    ),
    invalid_sink(
        "a while",
        "def push(rows):\n    while True:\n        pass\n",
        ("lib/crm.star:2: cannot use reserved keyword `while`; `ondatra docs push-functions` says what Starlark has"),
    ),
    invalid_sink(
        "an import",
        "import requests\n" + PUSH,
        ("lib/crm.star:1: cannot use reserved keyword `import`; `ondatra docs push-functions` says what Starlark has"),
    ),
    invalid_sink(
        "a try",
        "def push(rows):\n    try:\n        return {}\n    except Exception:\n        pass\n",
        "lib/crm.star:2: cannot use reserved keyword `try`; `ondatra docs push-functions` says what Starlark has",
    ),
    invalid_sink(
        "too few arguments",
        'API = {"push": {"args": ["team"]}}\ndef push(rows, team):\n    return {}\n',
        "models/a/b.sql:1: @sink gives crm 0 arguments, but it takes 1; write @sink: crm('team')",
    ),
    invalid_sink(
        "a kind that the sink doesn't take",
        'API = {"push": {"supported_kinds": ["merge"]}}\n' + PUSH,
        "models/a/b.sql:1: crm doesn't take models of kind table; it takes merge",
    ),
    invalid_files(
        "a push function in Latin-1",
        {"models/a/b.sql": MODEL, "lib/crm.star": b"# \xe9\ndef push(rows):\n    return {}\n"},
        "lib/crm.star:1: the file is not UTF-8; save it as UTF-8",
    ),
    invalid_model(
        "an incremental query that isn't",
        "-- @kind: append\n-- @incremental: id\n-- @incremental_initial: 0\nSELECT 1 AS id\n",
        (
            "models/a/b.sql:2: @incremental is there, but the query doesn't use {{ last_value }}; "
            "add WHERE id >= {{ last_value }}"
        ),
    ),
    invalid_model(
        "a last value of nothing",
        "-- @kind: append\nSELECT 1 AS id WHERE 1 >= {{ last_value }}\n",
        "models/a/b.sql:2: {{ last_value }} needs @incremental; add -- @incremental: column",
    ),
    invalid_model(
        "a kind that can't be incremental",
        "-- @kind: table\n-- @incremental: id\nSELECT id FROM range(3)\nWHERE id >= {{ last_value }}\n",
        "models/a/b.sql:2: kind table can't be incremental; remove it, or choose kind append or merge",
    ),
    invalid_model(
        "a beginning of nothing",
        "-- @kind: append\n-- @incremental_initial: 0\nSELECT 1 AS id\n",
        "models/a/b.sql:2: @incremental_initial has no @incremental; add -- @incremental: column",
    ),
    invalid_model(
        "a template that means nothing",
        "SELECT {{ foo }} AS id\n",
        "models/a/b.sql:1: {{ foo }} means nothing in a query; write {{ last_value }}, or remove it",
    ),
    invalid_model(
        "a partition by nothing",
        "-- @kind: partition\nSELECT 1 AS id\n",
        "models/a/b.sql:1: kind partition needs a key; add -- @partitioned_by: column",
    ),
    invalid_model(
        "versions of nothing",
        "-- @kind: scd2\nSELECT 1 AS id\n",
        "models/a/b.sql:1: kind scd2 needs a key; add -- @unique_key: column",
    ),
    invalid_model(
        "a column of the kind's own",
        "-- @kind: scd2\n-- @unique_key: id\nSELECT 1 AS id,\n true AS is_current\n",
        "models/a/b.sql:4: kind scd2 already has a column 'is_current'; rename it with AS",
    ),
    invalid_model(
        "events that are pushed",
        "-- @kind: events\n-- @sink: crm\nid STRING NOT NULL\n",
        "models/a/b.sql:2: kind events can't have a @sink; push a model of it",
    ),
    invalid_model(
        "events out of a query",
        "-- @kind: events\nSELECT 1 AS id\n",
        ("models/a/b.sql:2: there are no column definitions; write them as name TYPE [NOT NULL], between commas"),
    ),
    invalid_model(
        "events of a type that isn't",
        "-- @kind: events\nid STRNG NOT NULL\n",
        ("models/a/b.sql:2: the column definitions can't be read; write them as name TYPE [NOT NULL], between commas"),
    ),
    invalid_model(
        "events with a column twice",
        "-- @kind: events\nid STRING,\nID STRING\n",
        "models/a/b.sql:3: column 'ID' is a duplicate; rename one of them",
    ),
    invalid_model(
        "events with a column that all events have",
        "-- @kind: events\nid STRING,\n\n_extra STRING\n",
        "models/a/b.sql:4: kind events already has a column '_extra'; rename it",
    ),
    invalid_model(
        "events with a column of Delta's",
        "-- @kind: events\nid STRING, day DATE,\n_change_type STRING\n",
        "models/a/b.sql:3: a column can't be called '_change_type'; rename it",
    ),
    invalid_model(
        "events that can't be incremental",
        "-- @kind: events\n-- @incremental: id\nid STRING\n",
        "models/a/b.sql:2: kind events can't be incremental; remove it, or choose kind append or merge",
    ),
    invalid_model(
        "a name without its value",
        "SELECT json_object('a') AS id\n",
        (
            "models/a/b.sql:1: json_object() takes pairs of a name and a value, and one of them is incomplete; "
            "write json_object('name', value, 'other', value)"
        ),
    ),
    invalid_model(
        "a partition by no column",
        "-- @kind: partition\n-- @partitioned_by: dya\nSELECT 1 AS day\n",
        "models/a/b.sql:2: the query has no column 'dya'; did you mean 'day'? the columns are",
    ),
    invalid_model(
        "a schedule at no time",
        "-- @schedule: 0 25 * * *\nSELECT 1 AS id\n",
        "models/a/b.sql:1: a schedule has no hour '25'; write minute hour day month weekday",
    ),
    invalid_model(
        "a schedule by changes that nobody can tell",
        "-- @schedule: on change\nSELECT rand() AS id\n",
        ("models/a/b.sql:1: a query that may give other rows each time can't run on change; give @schedule a time"),
    ),
    invalid_model(
        "a schedule by changes of what has no query",
        "-- @kind: events\n-- @schedule: on change\npage STRING\n",
        "models/a/b.sql:2: events are flushed without a @schedule; remove it",
    ),
)
