"""How a broker comes to be, and how it goes: its parts, what it does meanwhile, and the steps of its end."""
