"""What programs that start jobs import besides the launcher."""
