"""Tools a model may call.

function_tool      a typed Python function as a tool, with its JSON schema; start here
http_tool          an HTTP API as a tool
mcp_server         MCP servers by name: a command, an address, or a file of them
mcp_transport      messages to and from a server, within limits
mcp_connection     one server that is kept alive
mcp_tools          what servers offer, as tools
tool_sources       tools by name: files, modules, servers
toolbox            runs the calls of a turn, each within its time limit
"""

from groupwise.agents.tools.function_tool import Tool, ToolError, tool

__all__ = ["Tool", "ToolError", "tool"]
