"""The APIs of compaction, erasure and what retention holds back."""
