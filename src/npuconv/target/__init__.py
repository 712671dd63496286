"""The device as data: a target file with operators, limits and their sources.

``facts``        facts of a node that a target can bound
``limit``        one limit of one fact, or ``?`` if it is undocumented; relations of facts
``description``  the fields of a target file
``files``        built-in target files and files of users
``lint``         checks beyond the structure, and every problem of a file
``target``       the description that is read from a file
"""

from __future__ import annotations

from npuconv.target.facts import value_text as value_text
from npuconv.target.files import builtin_names as builtin_names
from npuconv.target.files import listed_operators as listed_operators
from npuconv.target.files import read as read
from npuconv.target.target import Target as Target
