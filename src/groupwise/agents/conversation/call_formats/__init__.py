"""How models write tool calls. Read in this order:

reading           a model's text → its reply and calls; what a format is; limits and checks
json_calls        formats that write arguments as JSON
parameter_calls   formats that write each parameter by itself; literals reads their values
known             the table of formats; add yours with `register_format`
derived           marks worked out from what an unknown template writes
"""

from groupwise.agents.conversation.call_formats.derived import derived_formats
from groupwise.agents.conversation.call_formats.known import ADD, FORMATS, named_format, register_format
from groupwise.agents.conversation.call_formats.reading import CallFormat, read_reply

__all__ = ["ADD", "FORMATS", "CallFormat", "derived_formats", "named_format", "read_reply", "register_format"]
