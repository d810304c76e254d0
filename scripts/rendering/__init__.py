"""The parts of scripts/render_tables.py.

``tables.yaml`` has every table: its columns, and where its rows are. ``tables`` renders it,
``cells`` formats its numbers, and ``rows`` and ``trainings`` return the rows that no file has as
they are shown. ``paths`` finds numbers in JSON. ``frontier`` takes the results of every training,
for the pictures of scripts/frontier.py.
"""
