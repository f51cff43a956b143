"""Moves authenticated messages between devices: finding them, linking to them, talking to them."""
