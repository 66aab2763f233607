"""What is common to all frameworks."""
