"""The table of commands and the folders say the same."""

from pathlib import Path

from sparklog.cli import commands
from sparklog.cli.main import ROOMS

FOLDER = Path(commands.__file__).parent


def test_a_room_is_a_folder_and_its_modules_are_commands_or_parts_of_one():
    modules = {path.relative_to(FOLDER) for path in FOLDER.glob("*/*.py") if path.stem != "__init__"}
    listed = {Path(room, f"{name}.py") for room, names in ROOMS.items() for name in names}
    assert modules >= listed
    parts = {path.stem for path in modules - listed}
    assert parts == {"broker_run", "brokers", "group_offsets", "reassign", "trim"}


def test_no_command_is_in_two_rooms():
    names = [name for room in ROOMS.values() for name in room]
    assert len(names) == len(set(names))
