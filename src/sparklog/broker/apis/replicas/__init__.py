"""The APIs of leaders and followers, of where replicas lie, and of their moves."""
