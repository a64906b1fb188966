"""Where offloads go that is no Delta table: files with manifests, and relational databases."""
