"""How an Extract may capture a database, and from where: words of ADD and ALTER EXTRACT. ggsci's tables have them, so
this imports nothing.
"""

METHODS = ("TRANLOG", "TRIGGERLOG")
"""From the database's log, or from a queue that triggers fill. Which of them a database has says its kind."""

PLACES = {"begin_us": "BEGIN at a time", "lognum": "LOGNUM", "gtid": "GTID"}
"""Places that not every source's log is found by, by the keys of an order: what people are told of each."""
