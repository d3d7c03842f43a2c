"""What differs between engines when a run is made, moved on, stopped and resumed."""
