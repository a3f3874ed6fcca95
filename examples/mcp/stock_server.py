"""An MCP server over standard input and output with one tool. `agent.py` starts it."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("stock", log_level="WARNING")
STOCK = {"apples": 12, "pears": 0}


@server.tool()
def count_stock(item: str) -> str:
    """Returns how many pieces of an item are in stock."""
    return f"{STOCK.get(item, 0)} {item} in stock"


server.run("stdio")
