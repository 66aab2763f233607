"""Parts of the launcher that other programs import."""
