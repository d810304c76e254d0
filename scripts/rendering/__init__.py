"""The parts of scripts/render_tables.py.

``tables.yaml`` has every table: its columns, and where its rows are. ``tables`` renders it, and
``cells`` finds numbers in JSON, and formats them.
"""
