"""Tools a model may call.

function_tool      a typed Python function as a tool, with its JSON schema; start here
http_tool          an HTTP API as a tool
toolbox            runs the calls of a turn, each within its time limit; loads tools from files
"""

from groupwise.agents.tools.function_tool import Tool, ToolError, tool

__all__ = ["Tool", "ToolError", "tool"]
