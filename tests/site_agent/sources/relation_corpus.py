"""SELECTs that hospitals write: honest ones, and ones that mix patients or that a row can fail.

The tables: visits(patient_id, age, sbp, dx, seen, note, n) and labs(patient_id, code, value, taken) hold patients,
persons(id, born, sex) calls the key otherwise, codes(code, name, weight) is public.
"""

# ruff: noqa: E501 (a SELECT is one line)

from __future__ import annotations

from dataclasses import dataclass, field

from site_agent.reading.dataset import Declared

EVERY = ("duckdb", "sqlite", "postgres")
DUCKDB, SQLITE, POSTGRES = ("duckdb",), ("sqlite",), ("postgres",)
TYPED = ("duckdb", "postgres")
CODES = Declared(public=("codes",))
PERSONS = Declared(keys=("patient_id", "persons.id"))
NUMBERED = Declared(keys=("nr",))


@dataclass(frozen=True)
class Case:
    text: str
    dialects: tuple[str, ...] = EVERY
    declared: Declared = field(default_factory=Declared)


HONEST = (
    Case("SELECT * FROM visits"),
    Case("SELECT v.* FROM visits AS v WHERE v.age BETWEEN 18 AND 90 ORDER BY v.age"),
    Case("SELECT patient_id, age FROM visits WHERE dx IN ('E11', 'I10') AND note IS NOT NULL"),
    Case("SELECT patient_id, CASE WHEN age > 120 THEN NULL ELSE age END AS age FROM visits -- the ward's own\n"),
    Case("SELECT patient_id, COALESCE(dx, 'other') AS dx, lower(trim(note)) AS note, substr(dx, 1, 2) AS ch FROM visits"),
    Case("SELECT patient_id, age + 1 AS older, age * 2 - 3 AS twice, -age AS less FROM visits"),
    Case("SELECT patient_id, CAST(note AS INTEGER) AS age FROM visits WHERE note LIKE '1%' OR note NOT LIKE '%x'"),
    Case("SELECT patient_id, CAST(sbp AS DOUBLE PRECISION) / 10 AS kpa, round(sbp) AS sbp FROM visits", TYPED),
    Case("SELECT patient_id, n % age AS rest, abs(n) AS size, length(note) AS letters FROM visits"),
    Case("SELECT patient_id, coalesce(max(n), 0.1234567890123456789012345678) AS a FROM visits GROUP BY patient_id"),
    Case("SELECT patient_id, date_trunc('week', seen) AS m, date_trunc('year', CAST(seen AS TIMESTAMP)) AS y FROM visits", TYPED),
    Case("SELECT patient_id, n * n AS square, n + n AS two FROM visits", ("duckdb", "sqlite")),
    Case("SELECT patient_id, CAST(n AS NUMERIC) * n * n AS cube, sqrt(n) AS root, ln(n) AS log FROM visits", POSTGRES),
    Case("SELECT dx AS ward, patient_id FROM visits WHERE NOT (age < 18 OR age IS NULL)"),
    Case("SELECT note AS patient_id, age FROM visits"),
    Case("SELECT CAST(patient_id AS TEXT) AS patient_id, age FROM visits", ("sqlite", "postgres")),
    Case("SELECT patient_id, EXTRACT(YEAR FROM seen) AS y, EXTRACT(MONTH FROM seen) AS m FROM visits", TYPED),
    Case("SELECT patient_id, CAST(seen AS DATE) - CAST('2020-01-01' AS DATE) AS days FROM visits", TYPED),
    Case("SELECT patient_id, CAST(note AS DATE) + 30 AS later, CAST(seen AS DATE) + INTERVAL '3 month' AS l FROM visits", TYPED),
    Case("SELECT patient_id, date_diff('day', seen, DATE '2026-01-01') AS days, year(seen) AS y FROM visits", DUCKDB),
    Case("SELECT patient_id, julianday(seen) - julianday('2020-01-01') AS d, strftime('%Y', seen) AS y FROM visits", SQLITE),
    Case("SELECT patient_id, iif(age > 3, 'a', 'b') AS a, ifnull(note, '') AS b, typeof(n) AS c FROM visits", SQLITE),
    Case("SELECT patient_id, max(age) AS age, count(*) AS visits FROM visits GROUP BY patient_id"),
    Case("SELECT patient_id, dx, avg(sbp) AS sbp, sum(n) AS n FROM visits GROUP BY patient_id, dx"),
    Case("SELECT patient_id, dx, min(seen) AS seen FROM visits GROUP BY 1, 2 HAVING count(*) > 1"),
    Case("SELECT patient_id, count(DISTINCT dx) AS kinds FROM visits GROUP BY patient_id HAVING max(age) >= 1"),
    Case("SELECT patient_id, EXTRACT(YEAR FROM seen) AS y, count(*) AS k FROM visits GROUP BY 1, 2", TYPED),
    Case("SELECT patient_id, sum(age) FILTER (WHERE dx = 'E11') AS age FROM visits GROUP BY patient_id"),
    Case("SELECT patient_id, stddev(sbp) AS s, bool_or(age > 3) AS b FROM visits GROUP BY patient_id", TYPED),
    Case("SELECT patient_id, median(sbp) AS sbp, sum(age * n) AS x FROM visits GROUP BY patient_id", DUCKDB),
    # Two values that have a calculation in common.
    Case("SELECT patient_id, n * n AS square, n * n + 1 AS more, -n AS less, -(-n) AS same FROM visits", ("duckdb", "sqlite")),
    Case("SELECT patient_id, CAST(note AS TIMESTAMP) AS t, date_trunc('month', seen) AS m FROM visits", POSTGRES),
    Case("SELECT patient_id, CAST(note AS TIMESTAMP) AS t FROM visits", DUCKDB),
    Case("SELECT patient_id, max(age) AS a FROM visits GROUP BY patient_id HAVING max(age) > 'x' OR count(*) > 0", DUCKDB),
    Case("SELECT patient_id, max(seen) AS a FROM visits GROUP BY patient_id HAVING max(seen) > '2020-01-01'", TYPED),
    Case("SELECT patient_id, replace(note, '1', 'one') AS a FROM visits /* 1 */ -- /* */ OR 1 = 1\n"),
    Case("SELECT DISTINCT patient_id, dx FROM visits"),
    Case("SELECT DISTINCT * FROM labs", TYPED),
    Case("SELECT DISTINCT v.dx, v.patient_id AS patient_id FROM visits v"),
    Case("SELECT patient_id, row_number() OVER (PARTITION BY patient_id ORDER BY seen) AS k FROM visits"),
    Case("SELECT patient_id, rank() OVER (PARTITION BY patient_id, dx ORDER BY age DESC) AS k FROM visits"),
    Case("SELECT patient_id, sum(age) OVER (PARTITION BY dx, patient_id) AS age FROM visits"),
    Case("SELECT patient_id, lag(age, 1) OVER (PARTITION BY patient_id ORDER BY seen) AS age FROM visits"),
    Case(
        "SELECT patient_id, sum(age) OVER (PARTITION BY patient_id ORDER BY seen ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS a "
        "FROM visits"
    ),
    Case(
        "WITH r AS (SELECT v.*, row_number() OVER (PARTITION BY patient_id ORDER BY seen DESC) AS k FROM visits v) "
        "SELECT patient_id, age, dx FROM r WHERE r.k = 1"
    ),
    Case("SELECT * FROM visits QUALIFY row_number() OVER (PARTITION BY patient_id ORDER BY seen) = 1", DUCKDB),
    Case("FROM visits SELECT patient_id, age", DUCKDB),
    Case("SELECT * EXCLUDE (note) REPLACE (upper(dx) AS dx) FROM visits", DUCKDB),
    Case("SELECT v.patient_id, l.value FROM visits v JOIN labs l ON l.patient_id = v.patient_id AND l.taken >= v.seen"),
    Case("SELECT v.patient_id, l.value FROM visits v LEFT JOIN labs l ON v.patient_id = l.patient_id AND l.code = 'k'"),
    Case("SELECT v.patient_id, l.value FROM visits v, labs l WHERE v.patient_id = l.patient_id AND v.age > 3"),
    Case("SELECT patient_id, v.age, l.value FROM visits v JOIN labs l USING (patient_id)"),
    Case("SELECT V.Patient_Id, l.value FROM Visits AS V CROSS JOIN labs l WHERE v.PATIENT_ID = l.patient_id"),
    Case("SELECT v.patient_id, c.name FROM visits v JOIN codes c ON v.dx = c.code", declared=CODES),
    Case("SELECT v.patient_id, c.name, c.weight FROM visits v LEFT JOIN codes c ON lower(v.dx) = lower(c.code)", declared=CODES),
    Case("SELECT v.patient_id, c.name FROM codes c CROSS JOIN visits v WHERE v.age < c.weight", declared=CODES),
    Case("SELECT patient_id, age FROM visits WHERE dx NOT IN (SELECT c.code FROM codes c WHERE c.code IS NOT NULL)", declared=CODES),
    Case("SELECT v.patient_id, (SELECT max(c.name) FROM codes c WHERE c.code = v.dx) AS n FROM visits v", declared=CODES),
    Case(
        "WITH top AS (SELECT name, max(weight) AS w FROM codes GROUP BY name) "
        "SELECT v.patient_id, top.w FROM visits v JOIN top ON top.name = v.dx",
        declared=CODES,
    ),
    Case(
        "SELECT v.patient_id, c.name, count(*) AS k FROM visits v JOIN codes c ON c.code = v.dx GROUP BY v.patient_id, c.name",
        declared=CODES,
    ),
    Case("SELECT v.patient_id, k.label FROM visits v JOIN (VALUES ('E11', 'd'), ('I10', 'h')) AS k(code, label) ON k.code = v.dx",
         TYPED),
    Case("SELECT patient_id, age FROM visits a WHERE EXISTS (SELECT 1 FROM labs l WHERE l.patient_id = a.patient_id AND value > 3)"),
    Case("SELECT patient_id, age FROM visits v WHERE NOT EXISTS (SELECT 1 FROM labs l WHERE v.patient_id = l.patient_id)"),
    Case("SELECT patient_id, age FROM visits WHERE patient_id IN (SELECT patient_id FROM labs WHERE code = 'k')"),
    Case("SELECT patient_id, age FROM visits v WHERE dx IN (SELECT l.code FROM labs l WHERE l.patient_id = v.patient_id)"),
    Case("SELECT patient_id, (SELECT max(w.age) FROM visits w WHERE w.patient_id = v.patient_id) AS age FROM visits v"),
    Case("SELECT patient_id, dx FROM visits v WHERE seen = (SELECT max(w.seen) FROM visits w WHERE w.patient_id = v.patient_id)"),
    Case("SELECT patient_id FROM visits v WHERE age >= ALL (SELECT w.age FROM visits w WHERE w.patient_id = v.patient_id)", TYPED),
    Case(
        "WITH f AS (SELECT patient_id, min(seen) AS first FROM visits GROUP BY patient_id), "
        "m AS (SELECT patient_id, max(value) AS value FROM labs GROUP BY patient_id) "
        "SELECT f.patient_id, f.first, m.value FROM f LEFT JOIN m ON m.patient_id = f.patient_id"
    ),
    Case("SELECT t.patient_id, t.k + 1 AS k FROM (SELECT patient_id, count(*) AS k FROM visits GROUP BY patient_id) t"),
    Case("SELECT patient_id, age FROM visits UNION ALL SELECT patient_id, value FROM labs"),
    Case("SELECT v.patient_id, p.sex FROM visits v JOIN persons p ON p.id = v.patient_id", declared=PERSONS),
    Case("SELECT p.id AS patient_id, count(*) AS k FROM persons p JOIN visits v ON v.patient_id = p.id GROUP BY p.id",
         declared=PERSONS),
)  # fmt: skip

_PUBLIC_BETWEEN = "(SELECT c.code FROM codes c WHERE EXISTS (SELECT 1 FROM labs l WHERE l.patient_id = v.patient_id))"
_TIED = "WHERE w.patient_id = v.patient_id"
MIXING = (
    # Names that resolve to another table than they seem to.
    Case("SELECT patient_id, (SELECT avg(w.age) FROM visits w WHERE w.patient_id = patient_id) AS age FROM visits"),
    Case("SELECT patient_id, (SELECT avg(age) FROM visits WHERE visits.patient_id = patient_id) AS age FROM visits"),
    Case("SELECT patient_id FROM visits v WHERE EXISTS (SELECT 1 FROM labs v WHERE v.patient_id = v.patient_id)"),
    Case("SELECT patient_id FROM visits WHERE age > (SELECT avg(b.age) FROM visits b WHERE b.patient_id = b.patient_id)"),
    Case('SELECT patient_id, (SELECT max(w.age) FROM visits w WHERE w.patient_id = "PATIENT_ID") AS a FROM visits v'),
    Case("SELECT v.patient_id, l.value FROM visits v JOIN labs l ON patient_id = patient_id"),
    Case("SELECT v.patient_id, l.value FROM visits v JOIN labs l ON l.patient_id = l.patient_id"),
    Case("SELECT patient_id, sum(age) OVER (PARTITION BY q.patient_id) AS a FROM visits"),
    Case("WITH a AS (SELECT patient_id, sum(age) AS s FROM b GROUP BY patient_id), b AS (SELECT dx AS patient_id, age FROM visits) "
         "SELECT patient_id, s FROM a"),
    Case("WITH a AS (SELECT count(*) AS k FROM codes), codes AS (SELECT * FROM visits) SELECT v.patient_id, a.k FROM visits v CROSS JOIN a",
         declared=CODES),
    Case("SELECT main.patient_id FROM visits AS main WHERE main.dx IN flagged"),
    Case("SELECT v.patient_id, p.sex FROM visits v JOIN Main.Persons p ON p.patient_id = v.patient_id", declared=PERSONS),
    # A column that is only called the unit key.
    Case(f"SELECT dx AS patient_id, age FROM visits v WHERE dx IN {_PUBLIC_BETWEEN}", declared=CODES),
    Case("SELECT dx AS patient_id, count(*) AS k FROM visits GROUP BY dx"),
    Case("SELECT dx AS patient_id, count(*) AS k FROM visits GROUP BY 1"),
    Case("SELECT patient_id, count(*) AS k FROM (SELECT dx AS patient_id FROM visits) t GROUP BY patient_id"),
    Case("SELECT patient_id, age FROM visits v WHERE dx IN (SELECT dx AS patient_id FROM visits GROUP BY dx)"),
    Case("SELECT v.patient_id, t.k FROM visits v JOIN (SELECT dx AS patient_id, count(*) AS k FROM visits GROUP BY dx) t "
         "ON t.patient_id = v.dx"),
    Case("SELECT v.patient_id, t.k FROM visits v JOIN (SELECT dx AS patient_id, count(*) AS k FROM visits GROUP BY dx) t "
         "ON t.patient_id = v.patient_id"),
    Case("WITH t(patient_id, k) AS (SELECT dx, age FROM visits) SELECT patient_id, sum(k) AS k FROM t GROUP BY patient_id"),
    Case("SELECT DISTINCT dx AS patient_id, age FROM visits"),
    Case("SELECT dx AS patient_id, max(age) OVER (PARTITION BY dx) AS age FROM visits"),
    Case("SELECT dx AS patient_id, count(*) AS k FROM visits GROUP BY dx", declared=NUMBERED),
    Case("SELECT dx AS patient_id, k FROM (SELECT patient_id, dx, count(*) AS k FROM visits GROUP BY patient_id, dx) t"),
    Case("SELECT 1 AS patient_id, age FROM visits"),
    Case("SELECT c.code AS patient_id, v.age FROM visits v JOIN codes c ON c.code = v.dx", declared=CODES),
    # Tables that are not tied.
    Case("SELECT v.patient_id, l.value FROM visits v JOIN labs l ON l.code = v.dx"),
    Case("SELECT v.patient_id, l.value FROM visits v, labs l"),
    Case("SELECT v.patient_id, l.value FROM visits v CROSS JOIN labs l"),
    Case("SELECT v.patient_id, l.value FROM visits v LEFT JOIN labs l ON l.code = v.dx"),
    Case("SELECT v.patient_id FROM visits v LEFT JOIN labs l ON l.code = v.dx WHERE l.code IS NULL"),
    Case("SELECT v.patient_id FROM visits v JOIN labs l ON l.patient_id = v.patient_id OR l.code = v.dx"),
    Case("SELECT v.patient_id FROM visits v JOIN labs l ON l.patient_id <> v.patient_id"),
    Case("SELECT v.patient_id FROM visits v JOIN labs l ON l.patient_id = v.dx"),
    Case("SELECT v.patient_id FROM visits v JOIN labs l ON NOT (l.patient_id = v.patient_id)"),
    Case("SELECT l.patient_id, v.age FROM visits v FULL JOIN labs l ON l.patient_id = v.patient_id"),
    Case("SELECT v.patient_id, l.value FROM visits v RIGHT JOIN labs l ON l.patient_id = v.patient_id"),
    Case("SELECT patient_id FROM visits NATURAL JOIN labs"),
    Case("SELECT v.patient_id, c.name FROM visits v JOIN codes c ON c.code = v.dx"),
    Case("SELECT c.name AS patient_id, l.value FROM codes c LEFT JOIN labs l ON l.code = c.code", declared=CODES),
    Case("SELECT c.code, count(*) AS patient_id FROM codes c JOIN visits v ON v.dx = c.code GROUP BY c.code", declared=CODES),
    Case("SELECT v.patient_id, p.sex FROM visits v JOIN persons p ON p.id = v.patient_id"),
    Case("SELECT a.patient_id, b.age FROM visits a JOIN visits c ON c.patient_id = a.patient_id, visits b"),
    Case("SELECT a.patient_id FROM visits a, visits b LEFT JOIN labs l ON l.patient_id = a.patient_id AND a.patient_id = b.patient_id"),
    Case("SELECT v.patient_id, l.value FROM visits v LEFT JOIN labs l ON l.patient_id = v.patient_id "
         "JOIN (SELECT code, count(*) AS k FROM labs GROUP BY code) t ON t.code = l.code"),
    Case("SELECT a.patient_id, x.k FROM visits a LEFT JOIN (SELECT b.patient_id, count(*) OVER (PARTITION BY b.patient_id) AS k "
         "FROM visits v LEFT JOIN labs b ON b.patient_id = v.patient_id) x ON x.patient_id = a.patient_id"),
    Case("SELECT * FROM visits POSITIONAL JOIN labs", DUCKDB),
    Case("SELECT v.patient_id, l.value FROM visits v ASOF JOIN labs l ON v.seen >= l.taken", DUCKDB),
    Case("SELECT v.patient_id FROM visits v SEMI JOIN labs l ON l.code = v.dx", DUCKDB),
    Case("SELECT v.patient_id FROM visits v ANTI JOIN labs l ON l.code = v.dx", DUCKDB),
    Case("SELECT v.patient_id, m.a FROM visits v, LATERAL (SELECT max(w.age) AS a FROM visits w) m", TYPED),
    Case("SELECT patient_id FROM ((SELECT patient_id, age FROM visits) t CROSS JOIN (SELECT value FROM labs) l)"),
    # Queries inside that look at everybody.
    Case("SELECT v.patient_id, (SELECT count(*) FILTER (WHERE v.age > 3) FROM codes c) AS k FROM visits v", declared=CODES),
    Case("SELECT patient_id, row_number() OVER (PARTITION BY patient_id, count(*) FILTER (WHERE age > 3)) AS k FROM visits"),
    Case("SELECT patient_id, age - (SELECT avg(age) FROM visits) AS age FROM visits"),
    Case("SELECT patient_id FROM visits v WHERE EXISTS (SELECT 1 FROM labs l WHERE l.code = v.dx)"),
    Case("SELECT patient_id FROM visits WHERE NOT EXISTS (SELECT 1 FROM labs WHERE value > 100)"),
    Case("SELECT patient_id FROM visits WHERE dx IN (SELECT code FROM labs)"),
    Case("SELECT patient_id FROM visits WHERE patient_id NOT IN (SELECT patient_id FROM labs)"),
    Case("SELECT patient_id, patient_id IN (SELECT patient_id FROM labs) AS has FROM visits"),
    Case("SELECT patient_id FROM visits WHERE patient_id IN (SELECT max(patient_id) FROM labs)"),
    Case("SELECT patient_id FROM visits WHERE age > ALL (SELECT age FROM visits)", TYPED),
    Case("SELECT patient_id FROM visits WHERE age = ANY (SELECT value FROM labs)", TYPED),
    Case(f"SELECT patient_id FROM visits v WHERE age > (SELECT avg(w.age) FROM visits w {_TIED} OR w.age > 3)"),
    Case(f"SELECT patient_id FROM visits v WHERE EXISTS (SELECT 1 FROM visits w, labs l {_TIED})"),
    Case("SELECT patient_id, (SELECT max(v.age)) AS age FROM visits v"),
    Case("SELECT patient_id, (SELECT max(v.age) FROM codes c) AS age FROM visits v", declared=CODES),
    Case("SELECT c.code AS patient_id, (SELECT count(*) FROM visits v WHERE v.dx = c.code) AS k FROM codes c", declared=CODES),
    # Rows put together, cut off or put into an order.
    Case("SELECT patient_id, rank() OVER (ORDER BY age) AS k FROM visits"),
    Case("SELECT patient_id, avg(age) OVER () AS a FROM visits"),
    Case("SELECT patient_id, avg(age) OVER (PARTITION BY dx) AS a FROM visits"),
    Case("SELECT patient_id, avg(age) OVER w AS a FROM visits WINDOW w AS (PARTITION BY dx)"),
    Case("SELECT patient_id, max(age) OVER (PARTITION BY lower(patient_id)) AS a FROM visits"),
    Case("SELECT lower(patient_id) AS patient_id, max(age) AS a FROM visits GROUP BY lower(patient_id)"),
    Case("SELECT max(patient_id) AS patient_id FROM visits"),
    Case("SELECT patient_id, age FROM visits GROUP BY patient_id", SQLITE),
    Case("SELECT patient_id, max(age) AS a FROM visits HAVING max(age) > 3"),
    Case("SELECT DISTINCT ON (patient_id) patient_id, age FROM visits", TYPED),
    Case("SELECT patient_id, count(*) AS k FROM visits GROUP BY ALL", DUCKDB),
    Case("SELECT patient_id, first(age) AS a FROM visits GROUP BY patient_id", DUCKDB),
    Case("SELECT patient_id, any_value(age) AS a FROM visits GROUP BY patient_id", TYPED),
    Case("SELECT patient_id, arg_max(age, seen) AS a FROM visits GROUP BY patient_id", DUCKDB),
    Case("SELECT patient_id, mode(age) AS a FROM visits GROUP BY patient_id", DUCKDB),
    Case("SELECT patient_id, string_agg(dx, ',') AS a FROM visits GROUP BY patient_id", TYPED),
    Case("SELECT patient_id, group_concat(dx) AS a FROM visits GROUP BY patient_id", SQLITE),
    Case("SELECT patient_id, age FROM visits UNION ALL BY NAME SELECT age, patient_id FROM visits", DUCKDB),
    Case("SELECT patient_id, age FROM visits LIMIT 3"),
    Case("SELECT patient_id, age FROM visits UNION SELECT patient_id, age FROM visits"),
    Case("SELECT * FROM visits UNION ALL SELECT * FROM labs"),
    Case("SELECT DISTINCT * FROM labs", SQLITE),
    Case("SELECT patient_id, rowid AS r FROM visits"),
)  # fmt: skip

FAILING = (
    Case("SELECT patient_id, json_extract(note, '$.a') AS a FROM visits", SQLITE),
    Case("SELECT patient_id, printf('%1000000000d', age) AS a FROM visits", SQLITE),
    Case("SELECT patient_id, note LIKE dx AS a FROM visits", ("sqlite", "postgres")),
    Case("SELECT patient_id, zeroblob(n) AS a FROM visits", SQLITE),
    Case("SELECT patient_id, replace(note, '1', note) AS a FROM visits"),
    Case("SELECT patient_id, lpad(note, age, 'x') AS a FROM visits", DUCKDB),
    Case("SELECT patient_id, max(age, n) AS a FROM visits GROUP BY patient_id"),
    Case(
        "SELECT patient_id, (SELECT max(l.value, 3) FROM labs l WHERE l.patient_id = v.patient_id) AS a FROM visits v"
    ),
    Case("SELECT patient_id, EXTRACT(HOUR FROM seen) AS a FROM visits", TYPED),
    Case("SELECT patient_id, date_trunc('nonsense', seen) AS a FROM visits", TYPED),
    Case("SELECT patient_id, nth_value(age, 0) OVER (PARTITION BY patient_id) AS a FROM visits"),
    Case("SELECT patient_id, lag(age, 1, 'x') OVER (PARTITION BY patient_id) AS a FROM visits", DUCKDB),
    Case(
        "SELECT patient_id, coalesce(max(CAST(note AS TIMESTAMP)), max(seen)) AS a FROM visits GROUP BY patient_id",
        DUCKDB,
    ),
    Case(
        "SELECT patient_id, coalesce(lag(CAST(note AS TIMESTAMP)) OVER (PARTITION BY patient_id ORDER BY n), lag(seen) OVER (PARTITION BY patient_id ORDER BY n)) AS a FROM visits",
        DUCKDB,
    ),
    Case(
        "SELECT patient_id, CASE WHEN count(*) > 1 THEN max(n) ELSE max(sbp) END AS a FROM visits GROUP BY patient_id",
        DUCKDB,
    ),
    Case("SELECT patient_id, coalesce(max(age), 'x') AS a FROM visits GROUP BY patient_id", DUCKDB),
    Case("SELECT patient_id, date(seen, note) AS a FROM visits", SQLITE),
    Case("SELECT patient_id, (SELECT l.value FROM labs l WHERE l.patient_id = v.patient_id) AS a FROM visits v"),
    Case("SELECT patient_id, to_date(note, 'YYYY') AS a FROM visits", POSTGRES),
    Case("SELECT patient_id, n / age AS a FROM visits", POSTGRES),
    Case("SELECT patient_id, seen - note AS a FROM visits", POSTGRES),
    Case("SELECT patient_id, power(n, 9) AS a FROM visits", POSTGRES),
    Case("SELECT patient_id, substring(note from 1 for age) AS a FROM visits", POSTGRES),
    Case("SELECT patient_id, repeat(note, age) AS a FROM visits", TYPED),
    Case("SELECT patient_id, max(n) * max(n) AS a FROM visits GROUP BY patient_id", DUCKDB),
    Case("SELECT patient_id, strptime(note, '%Y') AS a FROM visits", DUCKDB),
    Case("SELECT patient_id, error(note) AS a FROM visits", DUCKDB),
)
