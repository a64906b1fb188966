"""Looking at log directories without touching them: what ``sparklog log dump`` and ``sparklog log verify`` do.

Nothing here opens a file for writing, creates, locks or truncates one; a broker may be at work in the directory.
"""
