"""How fast d2djax is, next to what it could be replaced by on the same machine; see README.md."""
