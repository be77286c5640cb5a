"""The music shop: its database, and the questions that can be asked about it with their queries."""

import random
import sqlite3
from dataclasses import dataclass
from pathlib import Path

SCHEMA = """\
CREATE TABLE artists (id INTEGER PRIMARY KEY, name TEXT, country TEXT)
CREATE TABLE albums (id INTEGER PRIMARY KEY, artist_id INTEGER, title TEXT, year INTEGER)
CREATE TABLE tracks (id INTEGER PRIMARY KEY, album_id INTEGER, name TEXT, genre TEXT, seconds INTEGER, price REAL)
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, city TEXT)
CREATE TABLE invoices (id INTEGER PRIMARY KEY, customer_id INTEGER, track_id INTEGER, year INTEGER)"""  # noqa: E501 - as SQLite repeats it

GENRES = ["Rock", "Jazz", "Blues", "Folk", "Soul", "Metal", "Techno", "Opera", "Reggae", "Disco"]
ARTISTS = [
    "Aldera",
    "Brunik",
    "Cavell",
    "Dornach",
    "Elvane",
    "Fjordal",
    "Garrick",
    "Hollins",
    "Isolde",
    "Jarvik",
    "Kestrel",
    "Lumen",
    "Marlowe",
    "Nordby",
    "Orsino",
    "Pallas",
]
YEARS = [str(year) for year in range(2004, 2020)]
CITIES = [
    "Bergen",
    "Lisbon",
    "Turin",
    "Ghent",
    "Krakow",
    "Oulu",
    "Porto",
    "Seville",
    "Tampere",
    "Utrecht",
    "Vienna",
    "Zagreb",
    "Leeds",
    "Lyon",
    "Malmo",
    "Nice",
]
COUNTRIES = [
    "Norway",
    "Portugal",
    "Italy",
    "Belgium",
    "Poland",
    "Finland",
    "Spain",
    "Austria",
    "Croatia",
    "France",
]
WORDS = [
    "Amber",
    "Birch",
    "Cedar",
    "Delta",
    "Ember",
    "Frost",
    "Grove",
    "Haven",
    "Indigo",
    "Juniper",
    "Lark",
    "Meadow",
]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of question: how it is asked, the right query, and likely wrong ones."""

    name: str
    values: list[str]
    phrasings: tuple[str, str, str]
    right: str
    wrong: tuple[str, ...]
    skill: float
    """How often the demonstrator writes the right query at its first try."""


KINDS = (
    Kind(
        "count_genre",
        GENRES,
        (
            "How many tracks are of the genre '{}'?",
            "Count the tracks whose genre is '{}'.",
            "What is the number of '{}' tracks?",
        ),
        "SELECT count(*) FROM tracks WHERE genre = '{}'",
        (
            "SELECT count(*) FROM albums WHERE genre = '{}'",
            "SELECT name FROM tracks WHERE genre = '{}'",
            "SELECT count(DISTINCT album_id) FROM tracks WHERE genre = '{}'",
        ),
        0.55,
    ),
    Kind(
        "mean_length",
        GENRES,
        (
            "How long is a '{}' track on average?",
            "What is the mean length of tracks of the genre '{}'?",
            "Give the average seconds of all '{}' tracks.",
        ),
        "SELECT avg(seconds) FROM tracks WHERE genre = '{}'",
        (
            "SELECT avg(length) FROM tracks WHERE genre = '{}'",
            "SELECT max(seconds) FROM tracks WHERE genre = '{}'",
        ),
        0.3,
    ),
    Kind(
        "dearest",
        GENRES,
        (
            "What does the dearest '{}' track cost?",
            "Give the highest price of a track of the genre '{}'.",
            "How much is the most expensive '{}' track?",
        ),
        "SELECT max(price) FROM tracks WHERE genre = '{}'",
        (
            "SELECT max(cost) FROM tracks WHERE genre = '{}'",
            "SELECT name FROM tracks WHERE genre = '{}' ORDER BY price LIMIT 1",
        ),
        0.4,
    ),
    Kind(
        "albums_of",
        ARTISTS,
        (
            "Which albums did '{}' make?",
            "List the titles of the albums by '{}'.",
            "What are the albums of '{}' called?",
        ),
        "SELECT title FROM albums JOIN artists ON artists.id = artist_id WHERE name = '{}'",
        (
            "SELECT title FROM albums WHERE artist = '{}'",
            "SELECT title FROM albums JOIN artists ON artists.id = albums.id WHERE name = '{}'",
        ),
        0.3,
    ),
    Kind(
        "count_albums_of",
        ARTISTS,
        (
            "How many albums did '{}' make?",
            "Count the albums by '{}'.",
            "What is the number of albums of '{}'?",
        ),
        "SELECT count(*) FROM albums JOIN artists ON artists.id = artist_id WHERE name = '{}'",
        (
            "SELECT count(*) FROM albums WHERE artist = '{}'",
            "SELECT title FROM albums JOIN artists ON artists.id = artist_id WHERE name = '{}'",
        ),
        0.45,
    ),
    Kind(
        "genres_of",
        ARTISTS,
        (
            "Which genres does '{}' play?",
            "List the different genres of '{}'.",
            "In what genres has '{}' made tracks?",
        ),
        "SELECT DISTINCT genre FROM tracks JOIN albums ON albums.id = album_id "
        "JOIN artists ON artists.id = artist_id WHERE artists.name = '{}'",
        (
            (
                "SELECT genre FROM tracks JOIN albums ON albums.id = album_id "
                "JOIN artists ON artists.id = artist_id WHERE artists.name = '{}'"
            ),
            "SELECT genre FROM artists WHERE name = '{}'",
        ),
        0.25,
    ),
    Kind(
        "albums_in",
        YEARS,
        (
            "Which albums came out in {}?",
            "List the titles of the albums of {}.",
            "What albums were made in {}?",
        ),
        "SELECT title FROM albums WHERE year = {}",
        ("SELECT name FROM albums WHERE year = {}", "SELECT title FROM albums WHERE year > {}"),
        0.6,
    ),
    Kind(
        "sales_in",
        YEARS,
        (
            "What did we sell for in {}?",
            "How much money came in during {}?",
            "Give the total of all sales of {}.",
        ),
        "SELECT sum(price) FROM invoices JOIN tracks ON tracks.id = track_id WHERE year = {}",
        (
            "SELECT sum(price) FROM invoices WHERE year = {}",
            "SELECT count(*) FROM invoices WHERE year = {}",
        ),
        0.2,
    ),
    Kind(
        "customers_in",
        CITIES,
        (
            "Who are our customers in '{}'?",
            "List the names of customers who live in '{}'.",
            "Which customers come from '{}'?",
        ),
        "SELECT name FROM customers WHERE city = '{}'",
        (
            "SELECT customer FROM customers WHERE city = '{}'",
            "SELECT city FROM customers WHERE name = '{}'",
        ),
        0.6,
    ),
    Kind(
        "count_customers_in",
        CITIES,
        (
            "How many customers live in '{}'?",
            "Count our customers in '{}'.",
            "What is the number of customers from '{}'?",
        ),
        "SELECT count(*) FROM customers WHERE city = '{}'",
        (
            "SELECT count(city) FROM invoices WHERE city = '{}'",
            "SELECT name FROM customers WHERE city = '{}'",
        ),
        0.5,
    ),
    Kind(
        "purchases_in",
        CITIES,
        (
            "How many tracks did customers in '{}' buy?",
            "Count the purchases from '{}'.",
            "What is the number of sales to '{}'?",
        ),
        "SELECT count(*) FROM invoices JOIN customers ON customers.id = customer_id "
        "WHERE city = '{}'",
        (
            "SELECT count(*) FROM invoices WHERE city = '{}'",
            "SELECT count(*) FROM customers WHERE city = '{}'",
        ),
        0.25,
    ),
    Kind(
        "artists_from",
        COUNTRIES,
        (
            "Which artists come from '{}'?",
            "List the names of artists of '{}'.",
            "What artists live in '{}'?",
        ),
        "SELECT name FROM artists WHERE country = '{}'",
        (
            "SELECT artist FROM artists WHERE country = '{}'",
            "SELECT count(*) FROM artists WHERE country = '{}'",
        ),
        0.5,
    ),
)


def build(path: Path, seed: int) -> None:
    """Write a database; another seed gives other content, so that few wrong queries are lucky."""
    rng = random.Random(seed)
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as database:
        for statement in SCHEMA.splitlines():
            database.execute(statement)
        for table, rows in _rows(rng).items():
            marks = ", ".join("?" * len(rows[0]))
            database.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
    database.close()


def _rows(rng: random.Random) -> dict[str, list[tuple[object, ...]]]:
    """Draw the rows of every table."""

    def named(number: int) -> str:
        return f"{rng.choice(WORDS)} {rng.choice(WORDS)} {number}"

    ids = {"artists": 60, "albums": 240, "tracks": 900, "customers": 120, "invoices": 1500}
    # Every name is in the database at least twice, so that counts and lists differ from nothing.
    return {
        "artists": [
            (n, ARTISTS[n - 1] if n <= len(ARTISTS) else named(n), rng.choice(COUNTRIES))
            for n in range(1, ids["artists"] + 1)
        ],
        "albums": [
            (n, rng.randint(1, 24), named(n), int(rng.choice(YEARS)))
            for n in range(1, ids["albums"] + 1)
        ],
        "tracks": [
            (
                n,
                rng.randint(1, ids["albums"]),
                named(n),
                rng.choice(GENRES),
                rng.randint(90, 600),
                rng.randint(50, 300) / 100,
            )
            for n in range(1, ids["tracks"] + 1)
        ],
        "customers": [(n, named(n), rng.choice(CITIES)) for n in range(1, ids["customers"] + 1)],
        "invoices": [
            (
                n,
                rng.randint(1, ids["customers"]),
                rng.randint(1, ids["tracks"]),
                int(rng.choice(YEARS)),
            )
            for n in range(1, ids["invoices"] + 1)
        ],
    }
