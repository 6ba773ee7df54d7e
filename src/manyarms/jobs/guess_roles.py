"""The likely role of each column of a log and of a catalog, by its name, its type and its values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from manyarms._base.arrow import pa
from manyarms.core.labels import other_type
from manyarms.logs.column_profile import ColumnProfile

NAMES: Mapping[str, str] = {
    "propensity": r"propensit|pscore|^p$|^prob|_prob$|probability|logging_p",
    "weight": r"^(row_|sample_)?weights?$",
    "time": r"time|timestamp|^ts$|^at$|_at$|date|^day$|^hour$|^week$",
    "group": r"user|session|visitor|customer|member|client|household|cookie|device_id|uid",
    "reward": r"reward|click|purchas|bought|buy|spen[dt]|revenue|margin|profit|rating|stars|conver|watch|like|sale"
    r"|dwell|order|amount|label|^y$|outcome",
    "action": r"^actions?(_id)?$|item|product|sku|article|^arms?$|^ads?(_id)?$|offer|movie|video|song|model|asin"
    r"|banner|book|track(?!ing)|recipe|hotel|listing|creative|^(shown|displayed|served|logged)_",
    "picks": r"recommend|pick|candidate|suggest|proposed|chosen_by|^new$",
}
"""Words in the names of columns, by role; the first role that fits is tried first."""

CATEGORY = r"categor|shelf|department|kind|type|genre|topic|class|group|brand|segment"

MANY_LEVELS, MANY_VALUES = 50, "it has many values"
"""Values of a column of texts beyond which it is no context, since their features make fits slow; and this reason."""

ELIGIBLE = r"eligible|candidat"
"""Names of columns with the actions that could be chosen."""


@dataclass(frozen=True)
class RoleGuess:
    """The likely roles of columns.

    Attributes:
        action, reward, propensity, weight, group, time, eligible: Columns of the log; empty where none has the role.
        context: The other columns of the log that may be contexts.
        picks: Columns of the log that hold ids of actions, such as those of a recommender.
        left_out: Columns that are no contexts, with the reason.
        id, category: Columns of the catalog.
    """

    action: str = ""
    reward: str = ""
    propensity: str = ""
    weight: str = ""
    group: str = ""
    time: str = ""
    eligible: str = ""
    context: tuple[str, ...] = ()
    picks: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])
    id: str = ""
    category: str = ""


def guess_roles(logs: Sequence[ColumnProfile], catalog: Sequence[ColumnProfile], given: Mapping[str, str]) -> RoleGuess:
    """Guess the role of each column from a sample of the rows; those that are given stay as they are."""
    known = {role: name for role, name in given.items() if name}
    columns = {column.name: column for column in logs}
    items = {column.name: column for column in catalog}
    taken = set(known.values())
    for role in ("propensity", "weight", "time", "group", "reward"):
        if role not in known:
            fits = [name for name in columns if name not in taken and _fits(role, columns[name])]
            if fits:
                known[role] = fits[0]
                taken.add(fits[0])
    named = [name for name, column in columns.items() if column.is_id_list and re.search(ELIGIBLE, name.lower())]
    known["eligible"] = named[0] if named else ""
    taken |= set(named[:1])
    known.setdefault("id", _id_column(columns, items, known.get("action", "")))
    ids = items[known["id"]].counts if known["id"] in items else {}
    free = [column for name, column in columns.items() if name not in taken and column.is_label]
    if "action" not in known:
        shares = {column.name: _share_known(column, ids) for column in free}
        named = [column.name for column in free if re.search(NAMES["action"], column.name.lower())]
        new = {column.name for column in free if re.search(NAMES["picks"], column.name.lower())}
        # A column of picks may have "item" or "model" in its name, too.
        ranks = {name: (share > 0.5, name not in new, name in named, share) for name, share in shares.items()}
        best = max(ranks, key=ranks.__getitem__, default="")
        known["action"] = best if best and (shares[best] > 0.5 or best in named) else (named[0] if named else "")
    action = known["action"]
    ids = ids or (columns[action].counts if action in columns else {})
    others = [column for column in free if column.name != action]
    picks = [column.name for column in others if _is_picks(column, ids)]
    taken |= {action, *picks}
    context, left_out = list[str](), dict[str, str]()
    for name, column in columns.items():
        if name not in taken:
            reason = "it holds lists of items" if _is_lists(column, ids) else _not_a_context(column)
            if reason:
                left_out[name] = reason
            else:
                context.append(name)
    known.setdefault("category", _category(items, known["id"]))
    return RoleGuess(**known, context=tuple(context), picks=tuple(picks), left_out=left_out)


def _share_known(column: ColumnProfile, ids: Mapping[object, int]) -> float:
    """The share of the rows of a column whose value is among some ids, as they are written."""
    total = sum(column.counts.values())
    inside = sum(count for value, count in column.counts.items() if value in ids or other_type(value) in ids)
    return inside / total if total else 0.0


def _fits(role: str, column: ColumnProfile) -> bool:
    named = bool(re.search(NAMES[role], column.name.lower()))
    if role == "time":
        return column.is_time or (named and column.is_label and column.n_distinct > 1)
    if role == "group":
        # user_feature_0 and User.age describe a user; user_id and User.id name one.
        outer, _, last = column.name.lower().rpartition(".")
        describes = re.search(r"feature|affinit", last) or (outer and not re.search(rf"{NAMES['group']}|id$", last))
        return named and column.is_label and not describes
    if role == "propensity":
        sure = re.search(r"propensit|pscore", column.name.lower()) is not None
        if not (named and column.is_number):
            return False
        return sure or (column.low is not None and column.low >= 0 and column.high <= 1.0)
    is_flag = column.type == "bool"
    return named and (column.is_number or is_flag)


def _id_column(columns: Mapping[str, ColumnProfile], items: Mapping[str, ColumnProfile], action: str) -> str:
    """The column of a catalog that tells its rows apart: named as in the log, or the first without repeats."""
    unique = [name for name, column in items.items() if column.is_label and column.n_distinct == column.n_rows]
    shared = [name for name in items if name == action] or [name for name in unique if name in columns]
    return (shared or unique or [""])[0]


def _is_picks(column: ColumnProfile, ids: Mapping[object, int]) -> bool:
    named = bool(re.search(NAMES["picks"], column.name.lower()))
    texts = [value for value in column.counts if isinstance(value, str)]
    return bool(ids) and _share_known(column, ids) > (0.5 if named else 0.99) and (named or len(texts) > 1)


def _is_lists(column: ColumnProfile, ids: Mapping[object, int]) -> bool:
    """True for texts such as a|b|c whose parts are ids, and for Arrow lists."""
    texts = [value for value in column.counts if isinstance(value, str)][:100]
    parts = [part.strip() for text in texts for part in text.split("|")]
    return len(parts) > len(texts) and all(part in ids or other_type(part) in ids for part in parts)


def _not_a_context(column: ColumnProfile) -> str:
    """The reason why a column is not a context; empty if it may be one."""
    if not column.name or re.fullmatch(r"Unnamed: \d+", column.name) or "," in column.name:
        comma = "its name has a comma, which separates names on the command line"
        return comma if "," in column.name else "it has no name, as a column of row numbers"
    if column.is_constant or column.is_id_list:
        return "it is constant" if column.is_constant else "it holds lists of labels"
    unique = column.n_distinct == column.n_rows > 20
    if column.is_time or (unique and pa.types.is_integer(column.type) and column.high - column.low < column.n_rows):
        return "it is a time" if column.is_time else "it numbers the rows"
    many = column.n_distinct > 0.5 * max(column.n_rows, 1) and column.n_rows > 20
    if many and column.is_label and not (column.is_number and not re.search(r"id$|^id|uuid|key", column.name.lower())):
        return "almost every row has a value of its own"
    if column.type == "null" or column.n_missing == column.n_rows:
        return "it is empty"
    odd = column.odd_number is not None
    many_values = MANY_VALUES if column.is_text and column.n_distinct > MANY_LEVELS else ""
    return "its numbers are read as texts" if odd else many_values


def _category(items: Mapping[str, ColumnProfile], id: str) -> str:
    repeated = [
        name for name, column in items.items()
        if name != id and column.is_label and 1 < column.n_distinct <= max(2, column.n_rows // 2)
    ]  # fmt: skip
    named = [name for name in repeated if re.search(CATEGORY, name.lower())]
    return (named or repeated or [""])[0]
