"""Statistics, groups and views that are refused, and the one sentence that says what works."""

from __future__ import annotations

import pytest

from wardround.analyst.sql import parse
from wardround.federation.errors import QueryMistaken

BOUNDS = "narrower bounds are written as CLAMP(column, 90, 180)."
LIMIT = "LIMIT takes a whole number of groups from 1 up, as in LIMIT 10."
HAVING = "HAVING compares an aggregate of the SELECT list with numbers, as in HAVING COUNT(*) > 100."
CASE = "CASE makes intervals of one column with <, <=, >, >=, BETWEEN and AND, as in CASE WHEN age < 40 THEN 'young' ELSE 'old' END."
HISTOGRAM = "HISTOGRAM is written as HISTOGRAM(column, 20)."
BUCKET = "WIDTH_BUCKET is written as WIDTH_BUCKET(column, 0, 100, 10)."
SHARE = "SHARE_BELOW is written as SHARE_BELOW(column, 140)."
QUANTILE = "QUANTILE is written as QUANTILE(column, 0.9)."
WITHIN = "this form of WITHIN GROUP is not supported; use PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY column)."
KAPLAN = "KAPLAN_MEIER is written as KAPLAN_MEIER(time, event) or KAPLAN_MEIER(time, event, 24)."
BUCKETS = "WIDTH_BUCKET needs a smaller number, a larger one and 1 to 1023 intervals between them."
UNLISTED = "GROUP BY makes groups of 'd' that the SELECT list does not name; give them an alias there and group by it."


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "SELECT MIN(a) FROM t",
            "the smallest value is one patient's own; use PERCENTILE_CONT(0.01) WITHIN GROUP (ORDER BY column).",
        ),
        (
            "SELECT MAX(a) FROM t",
            "the largest value is one patient's own; use PERCENTILE_CONT(0.99) WITHIN GROUP (ORDER BY column).",
        ),
        ("SELECT MEAN(a) FROM t", "MEAN is not supported; use AVG(column)."),
        ("SELECT AVERAGE(a) FROM t", "AVERAGE is not supported; use AVG(column)."),
        ("SELECT TOTAL(a) FROM t", "TOTAL is not supported; use SUM(column)."),
        ("SELECT VAR(a) FROM t", "VAR is not supported; use VARIANCE(column)."),
        ("SELECT STD(a) FROM t", "STD is not supported; use STDDEV(column)."),
        ("SELECT STDEV(a) FROM t", "STDEV is not supported; use STDDEV(column)."),
        (
            "SELECT APPROX_QUANTILE(a, 0.5) FROM t",
            "APPROX_QUANTILE is not supported, because every answer is approximate here; use QUANTILE(column, 0.9).",
        ),
        (
            "SELECT APPROX_PERCENTILE(a, 0.5) FROM t",
            "APPROX_PERCENTILE is not supported, because every answer is approximate here; use QUANTILE(column, 0.9).",
        ),
        ("SELECT QUANTILE_CONT(a, 0.5) FROM t", "QUANTILE_CONT is not supported; use QUANTILE(column, 0.9)."),
        (
            "SELECT APPROX_MEDIAN(a) FROM t",
            "APPROX_MEDIAN is not supported, because every answer is approximate here; use MEDIAN(column).",
        ),
        ("SELECT PERCENTILE(a, 0.5) FROM t", "PERCENTILE is not supported; use QUANTILE(column, 0.9)."),
        (
            "SELECT PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY a) FROM t",
            "PERCENTILE_DISC is not supported, because a value of the table is one patient's own; use PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY column).",
        ),
        (
            "SELECT PERCENTILE_DISC(a, 0.5) FROM t",
            "PERCENTILE_DISC is not supported, because a value of the table is one patient's own; use PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY column).",
        ),
        (
            "SELECT APPROX_COUNT_DISTINCT(a) FROM t",
            "APPROX_COUNT_DISTINCT is not supported, because every answer is approximate here; use COUNT(DISTINCT key) for patients.",
        ),
        ("SELECT COUNT_IF(a > 5) FROM t", "COUNT_IF is not supported; use COUNT(*) and put the condition into WHERE."),
        (
            "SELECT BOOL_AND(a) FROM t",
            "BOOL_AND is not supported, because one patient would decide it; use AVG(column), the share of TRUE.",
        ),
        (
            "SELECT BOOL_OR(a) FROM t",
            "BOOL_OR is not supported, because one patient would decide it; use AVG(column), the share of TRUE.",
        ),
        (
            "SELECT EVERY(a) FROM t",
            "EVERY is not supported, because one patient would decide it; use AVG(column), the share of TRUE.",
        ),
        ("SELECT COVAR_POP(a, b) FROM t", "COVAR_POP is not supported; use CORR(x, y) and STDDEV of each column."),
        ("SELECT COVAR_SAMP(a, b) FROM t", "COVAR_SAMP is not supported; use CORR(x, y) and STDDEV of each column."),
        ("SELECT REGR_SLOPE(a, b) FROM t", "REGR_SLOPE is not supported; use REGRESS(y, x)."),
        ("SELECT REGR_INTERCEPT(a, b) FROM t", "REGR_INTERCEPT is not supported; use REGRESS(y, x)."),
        ("SELECT REGR_R2(a, b) FROM t", "REGR_R2 is not supported; use REGRESS(y, x)."),
        ("SELECT KURTOSIS(a) FROM t", "KURTOSIS is not supported; use HISTOGRAM(column, 20)."),
        ("SELECT SKEWNESS(a) FROM t", "SKEWNESS is not supported; use HISTOGRAM(column, 20)."),
        ("SELECT ENTROPY(a) FROM t", "ENTROPY is not supported; use HISTOGRAM(column, 20)."),
        ("SELECT IQR(a) FROM t", "IQR is not supported; use QUANTILE(column, 0.25) and QUANTILE(column, 0.75)."),
        ("SELECT MAD(a) FROM t", "MAD is not supported; use QUANTILE(column, 0.25) and QUANTILE(column, 0.75)."),
        ("SELECT TOPK(a) FROM t", "TOPK is not supported; use GROUP BY column ORDER BY COUNT(*) DESC LIMIT 10."),
        (
            "SELECT APPROX_TOP_K(a, 3) FROM t",
            "APPROX_TOP_K is not supported; use GROUP BY column ORDER BY COUNT(*) DESC LIMIT 10.",
        ),
        (
            "SELECT ANY_VALUE(a) FROM t",
            "ANY_VALUE is not supported, because a row's value is one patient's own; use MODE(column) or MEDIAN(column).",
        ),
        (
            "SELECT FIRST(a) FROM t",
            "FIRST is not supported, because a row's value is one patient's own; use MODE(column) or MEDIAN(column).",
        ),
        (
            "SELECT LAST(a) FROM t",
            "LAST is not supported, because a row's value is one patient's own; use MODE(column) or MEDIAN(column).",
        ),
        (
            "SELECT FIRST_VALUE(a) FROM t",
            "FIRST_VALUE is not supported, because a row's value is one patient's own; use MODE(column) or MEDIAN(column).",
        ),
        (
            "SELECT ARG_MIN(a, b) FROM t",
            "ARG_MIN is not supported, because a row's value is one patient's own; use MODE(column) or MEDIAN(column).",
        ),
        (
            "SELECT MAX_BY(a, b) FROM t",
            "ARG_MAX is not supported, because a row's value is one patient's own; use MODE(column) or MEDIAN(column).",
        ),
        (
            "SELECT ARRAY_AGG(a) FROM t",
            "ARRAY_AGG is not supported, because rows never leave a hospital; use KEYS(column) for the values of an open category.",
        ),
        (
            "SELECT GROUP_CONCAT(a) FROM t",
            "GROUP_CONCAT is not supported, because rows never leave a hospital; use KEYS(column) for the values of an open category.",
        ),
        (
            "SELECT STRING_AGG(a, ',') FROM t",
            "GROUP_CONCAT is not supported, because rows never leave a hospital; use KEYS(column) for the values of an open category.",
        ),
        (
            "SELECT LIST(a) FROM t",
            "LIST is not supported, because rows never leave a hospital; use KEYS(column) for the values of an open category.",
        ),
        (
            "SELECT CLAMP(a, 1, 2) FROM t",
            "CLAMP is not supported alone; it stands inside an aggregate, as in AVG(CLAMP(column, 90, 180)).",
        ),
        (
            "SELECT LEAST(a, 1) FROM t",
            "LEAST is not supported alone; it stands inside an aggregate, as in AVG(LEAST(GREATEST(column, 90), 180)).",
        ),
        (
            "SELECT GREATEST(a, 1) FROM t",
            "GREATEST is not supported alone; it stands inside an aggregate, as in AVG(LEAST(GREATEST(column, 90), 180)).",
        ),
        (
            "SELECT HISTORGAM(a, 3) FROM t",
            "the function HISTORGAM is not supported in SELECT; the nearest that works is HISTOGRAM.",
        ),
        (
            "SELECT MEDIANN(a) FROM t",
            "the function MEDIANN is not supported in SELECT; the nearest that works is MEDIAN.",
        ),
        (
            "SELECT KAPLAN_MEYER(a, b) FROM t",
            "the function KAPLAN_MEYER is not supported in SELECT; the nearest that works is KAPLAN_MEIER.",
        ),
        (
            "SELECT REGRES(a, b) FROM t",
            "the function REGRES is not supported in SELECT; the nearest that works is REGRESS.",
        ),
        (
            "SELECT CHISQUARE(a, b) FROM t",
            "the function CHISQUARE is not supported in SELECT; the nearest that works is CHI_SQUARE.",
        ),
        (
            "SELECT SHAREBELOW(a, 1) FROM t",
            "the function SHAREBELOW is not supported in SELECT; the nearest that works is SHARE_BELOW.",
        ),
        ("SELECT MEDIAN() FROM t", "MEDIAN takes one column of the study, and here are 0."),
        ("SELECT MEDIAN(a, b) FROM t", "MEDIAN takes one column of the study, and here are 2."),
        ("SELECT MEDIAN(*) FROM t", "MEDIAN takes one column of the study, not *."),
        ("SELECT MEDIAN(1) FROM t", "MEDIAN takes one column of the study, not the value '1'."),
        ("SELECT MEDIAN('a') FROM t", "MEDIAN takes one column of the study, not the value 'a'."),
        ("SELECT MEDIAN(DISTINCT a) FROM t", "MEDIAN(DISTINCT …) is not supported; use MEDIAN(column)."),
        ("SELECT MEDIAN(a + 1) FROM t", "MEDIAN takes one column of the study, not arithmetic."),
        ("SELECT MEDIAN(a IGNORE NULLS) FROM t", "absent values are always left out; use MEDIAN(column)."),
        ("SELECT MEDIAN(a ORDER BY b) FROM t", "MEDIAN takes one column of the study, not ORDER."),
        (
            "SELECT MEDIAN(a) OVER () FROM t",
            "window functions (OVER) are not supported; use an aggregate with GROUP BY.",
        ),
        ("SELECT MEDIAN(a) FILTER (WHERE b) FROM t", "FILTER is not supported; put the condition into WHERE."),
        ("SELECT MEDIAN(MEDIAN(a)) FROM t", "MEDIAN takes one column of the study, not the function MEDIAN."),
        ("SELECT VARIANCE(a, b) FROM t", "VARIANCE takes one column of the study, and here are 2."),
        ("SELECT VARIANCE(*) FROM t", "VARIANCE takes one column of the study, not *."),
        ("SELECT STDDEV(DISTINCT a) FROM t", "STDDEV(DISTINCT …) is not supported; use STDDEV(column)."),
        ("SELECT STDDEV_POP() FROM t", "STDDEV_POP takes one column of the study, and here are 0."),
        ("SELECT VAR_SAMP(1) FROM t", "VAR_SAMP takes one column of the study, not the value '1'."),
        ("SELECT HISTOGRAM(a) FROM t", HISTOGRAM),
        (
            "SELECT HISTOGRAM(a, 2.5) FROM t",
            "HISTOGRAM takes a whole number of intervals; it is written as HISTOGRAM(column, 20).",
        ),
        ("SELECT HISTOGRAM(a, 'ten') FROM t", HISTOGRAM),
        ("SELECT HISTOGRAM(a, b) FROM t", HISTOGRAM),
        ("SELECT HISTOGRAM(20, a) FROM t", HISTOGRAM),
        ("SELECT HISTOGRAM(a, 10, 20) FROM t", HISTOGRAM),
        ("SELECT HISTOGRAM(a, -(b)) FROM t", HISTOGRAM),
        ("SELECT SHARE_BELOW(a) FROM t", SHARE),
        ("SELECT SHARE_BELOW(a, 'x') FROM t", SHARE),
        ("SELECT SHARE_BELOW(140, a) FROM t", SHARE),
        ("SELECT SHARE_BELOW(a, b) FROM t", SHARE),
        ("SELECT QUANTILE(a) FROM t", QUANTILE),
        ("SELECT QUANTILE(a, '0.5') FROM t", QUANTILE),
        ("SELECT QUANTILE(0.5, a) FROM t", QUANTILE),
        ("SELECT QUANTILE(a, 0.5, 0.9) FROM t", QUANTILE),
        (
            "SELECT PERCENTILE_CONT(a, 0.5) FROM t",
            "PERCENTILE_CONT is written with its column behind it: PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY column).",
        ),
        (
            "SELECT PERCENTILE_CONT(0.5) FROM t",
            "PERCENTILE_CONT is written with its column behind it: PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY column).",
        ),
        ("SELECT PERCENTILE_CONT() WITHIN GROUP (ORDER BY a) FROM t", WITHIN),
        (
            "SELECT PERCENTILE_CONT(b) WITHIN GROUP (ORDER BY a) FROM t",
            "the level of a quantile is a number; use PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY column).",
        ),
        (
            "SELECT PERCENTILE_CONT('0.5') WITHIN GROUP (ORDER BY a) FROM t",
            "the level of a quantile is a number; use PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY column).",
        ),
        (
            "SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY a DESC) FROM t",
            "a quantile is counted from below; leave DESC out of PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY column).",
        ),
        ("SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY a, b) FROM t", WITHIN),
        (
            "SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY 1) FROM t",
            "PERCENTILE_CONT takes one column of the study, not the value '1'.",
        ),
        (
            "SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY a + 1) FROM t",
            "PERCENTILE_CONT takes one column of the study, not arithmetic.",
        ),
        ("SELECT MODE() WITHIN GROUP (ORDER BY a) FROM t", "MODE is written as MODE(column)."),
        ("SELECT RANK() WITHIN GROUP (ORDER BY a) FROM t", WITHIN),
        ("SELECT FOO(0.5) WITHIN GROUP (ORDER BY a) FROM t", WITHIN),
        ("SELECT CHI_SQUARE(a) FROM t", "CHI_SQUARE takes two columns of the study, and here are 1."),
        ("SELECT CHI_SQUARE(a, b, c) FROM t", "CHI_SQUARE takes two columns of the study, and here are 3."),
        ("SELECT CHI_SQUARE(a, 1) FROM t", "CHI_SQUARE takes columns of the study, not the value '1'."),
        ("SELECT CORR(a) FROM t", "CORR takes 2 to 12 columns of the study, and here are 1."),
        ("SELECT CORR(a, 2) FROM t", "CORR takes columns of the study, not the value '2'."),
        ("SELECT CORR(a, a + b) FROM t", "CORR takes columns of the study, not arithmetic."),
        ("SELECT CORR(a,b,c,d,e,f,g,h,i,j,k,l,m) FROM t", "CORR takes 2 to 12 columns of the study, and here are 13."),
        ("SELECT REGRESS(a) FROM t", "REGRESS takes 2 to 12 columns of the study, and here are 1."),
        ("SELECT REGRESS(a, 1) FROM t", "REGRESS takes columns of the study, not the value '1'."),
        ("SELECT REGRESS(a, b * 2) FROM t", "REGRESS takes columns of the study, not arithmetic."),
        ("SELECT REGRESS() FROM t", "REGRESS takes 2 to 12 columns of the study, and here are 0."),
        ("SELECT KAPLAN_MEIER(a) FROM t", KAPLAN),
        ("SELECT KAPLAN_MEIER(a, b, c) FROM t", KAPLAN),
        ("SELECT KAPLAN_MEIER(a, b, 12, 3) FROM t", KAPLAN),
        ("SELECT KAPLAN_MEIER(a, TRUE) FROM t", "KAPLAN_MEIER takes columns of the study, not TRUE."),
        (
            "SELECT KAPLAN_MEIER(a, b, 1.5) FROM t",
            "KAPLAN_MEIER takes a whole number of intervals; it is written as KAPLAN_MEIER(time, event) or KAPLAN_MEIER(time, event, 24).",
        ),
        ("SELECT MODE() FROM t", "MODE takes one column of the study, and here are 0."),
        ("SELECT MODE(a, b) FROM t", "MODE takes one column of the study, and here are 2."),
        ("SELECT MODE(1) FROM t", "MODE takes one column of the study, not the value '1'."),
        ("SELECT KEYS() FROM t", "KEYS takes one column of the study, and here are 0."),
        ("SELECT KEYS(*) FROM t", "KEYS takes one column of the study, not *."),
        ("SELECT KEYS(a, b) FROM t", "KEYS takes one column of the study, and here are 2."),
        ("SELECT AVG(CLAMP(a)) FROM t", BOUNDS),
        ("SELECT AVG(CLAMP(a, 1)) FROM t", BOUNDS),
        ("SELECT AVG(CLAMP(a, 'x', 2)) FROM t", BOUNDS),
        ("SELECT AVG(CLAMP(a, b, 2)) FROM t", BOUNDS),
        ("SELECT AVG(CLAMP(1, 2, a)) FROM t", BOUNDS),
        ("SELECT AVG(CLAMP(CLAMP(a, 1, 2), 1, 2)) FROM t", BOUNDS),
        ("SELECT AVG(LEAST(a, 5)) FROM t", BOUNDS),
        ("SELECT AVG(LEAST(LEAST(a, 5), 6)) FROM t", BOUNDS),
        ("SELECT AVG(GREATEST(a, b)) FROM t", BOUNDS),
        ("SELECT AVG(LEAST(GREATEST(a, 1, 2), 3)) FROM t", BOUNDS),
        ("SELECT AVG(LEAST(3, GREATEST(a, 1))) FROM t", BOUNDS),
        ("SELECT AVG(ABS(a)) FROM t", "AVG takes one column of the study, not the function ABS."),
        ("SELECT AVG(COALESCE(a, 0)) FROM t", "AVG takes one column of the study, not the function COALESCE."),
        (
            "SELECT COUNT(CLAMP(a, 1, 2)) FROM t",
            "this form of COUNT is not supported; use COUNT(*) to count events or COUNT(DISTINCT key) to count patients.",
        ),
        (
            "SELECT COUNT(DISTINCT CLAMP(a, 1, 2)) FROM t",
            "COUNT(DISTINCT the function CLAMP) is not supported; use COUNT(*) to count events or COUNT(DISTINCT key) to count patients.",
        ),
        (
            "SELECT s.MEDIAN(a) FROM t",
            "DOT is not supported in SELECT; use COUNT(*), COUNT(DISTINCT key), SUM(column), AVG(column), STDDEV(column) or MEDIAN(column).",
        ),
        (
            "SELECT MEDIAN(a) + 1 FROM t",
            "arithmetic is not supported in SELECT; use COUNT(*), COUNT(DISTINCT key), SUM(column), AVG(column), STDDEV(column) or MEDIAN(column).",
        ),
        (
            "SELECT -MEDIAN(a) FROM t",
            "arithmetic is not supported in SELECT; use COUNT(*), COUNT(DISTINCT key), SUM(column), AVG(column), STDDEV(column) or MEDIAN(column).",
        ),
        (
            "SELECT MEDIAN(a) > 5 FROM t",
            "a condition is not supported in SELECT; use COUNT(*), COUNT(DISTINCT key), SUM(column), AVG(column), STDDEV(column) or MEDIAN(column).",
        ),
        (
            "SELECT CAST(MEDIAN(a) AS INT) FROM t",
            "a cast is not supported in SELECT; use COUNT(*), COUNT(DISTINCT key), SUM(column), AVG(column), STDDEV(column) or MEDIAN(column).",
        ),
        (
            "SELECT ROUND(AVG(a), 1) FROM t",
            "ROUND is not supported; answers are shown with the digits that their error supports.",
        ),
        ("SELECT WIDTH_BUCKET(a, 1) FROM t", BUCKET),
        (
            "SELECT IF(a < 40, 'x', 'y') FROM t",
            "IF is not supported; CASE makes intervals of one column with <, <=, >, >=, BETWEEN and AND, as in CASE WHEN age < 40 THEN 'young' ELSE 'old' END.",
        ),
        ("SELECT FLOOR(a / 10) FROM t", "FLOOR is not supported; use WIDTH_BUCKET(column, 0, 100, 10) or CASE."),
        (
            "SELECT EXTRACT(month FROM d) FROM t",
            "EXTRACT is not supported; use DATE_TRUNC('month', column), a series by month.",
        ),
        ("SELECT MONTH(d) FROM t", "MONTH is not supported; use DATE_TRUNC('month', column), a series by month."),
        ("SELECT YEAR(d) FROM t", "YEAR is not supported; use DATE_TRUNC('month', column), a series by month."),
        (
            "SELECT DATE_PART('month', d) FROM t",
            "DATE_PART is not supported; use DATE_TRUNC('month', column), a series by month.",
        ),
        (
            "SELECT TO_CHAR(d, 'YYYY-MM') FROM t",
            "TO_CHAR is not supported; use DATE_TRUNC('month', column), a series by month.",
        ),
        (
            "SELECT STRFTIME(d, '%Y') FROM t",
            "STRFTIME is not supported; use DATE_TRUNC('month', column), a series by month.",
        ),
        (
            "SELECT DATE_TRUNC('year', d) FROM t",
            "this form of DATE_TRUNC is not supported; use DATE_TRUNC('month', column), a series by month.",
        ),
        ("SELECT DATE_TRUNC('month', d + 1) FROM t", "DATE_TRUNC takes a date column of the study, not arithmetic."),
        (
            "SELECT DATE_TRUNC('day', d) FROM t",
            "this form of DATE_TRUNC is not supported; use DATE_TRUNC('month', column), a series by month.",
        ),
        (
            "SELECT CASE a WHEN 1 THEN 'x' ELSE 'y' END FROM t",
            "CASE column WHEN value is not supported; CASE makes intervals of one column with <, <=, >, >=, BETWEEN and AND, as in CASE WHEN age < 40 THEN 'young' ELSE 'old' END.",
        ),
        ("SELECT CASE WHEN a THEN 'x' ELSE 'y' END FROM t", CASE),
        (
            "SELECT CASE WHEN a < 40 THEN 'x' END FROM t",
            "some values have no label in this CASE; add ELSE with a label for them.",
        ),
        (
            "SELECT CASE WHEN a < 40 THEN 'x' WHEN b < 40 THEN 'y' ELSE 'z' END FROM t",
            "this CASE compares both 'a' and 'b'; CASE makes intervals of one column with <, <=, >, >=, BETWEEN and AND, as in CASE WHEN age < 40 THEN 'young' ELSE 'old' END.",
        ),
        ("SELECT CASE WHEN a < 40 OR a > 60 THEN 'x' ELSE 'y' END FROM t", CASE),
        ("SELECT CASE WHEN a = 40 THEN 'x' ELSE 'y' END FROM t", CASE),
        ("SELECT CASE WHEN a < 'm' THEN 'x' ELSE 'y' END FROM t", "CASE compares with numbers, not with 'm'."),
        ("SELECT CASE WHEN a IS NULL THEN 'x' ELSE 'y' END FROM t", CASE),
        (
            "SELECT CASE WHEN a < 40 THEN 'x' WHEN a < 30 THEN 'y' ELSE 'z' END FROM t",
            "the CASE never comes to 'y'; an earlier WHEN holds wherever that one does.",
        ),
        (
            "SELECT CASE WHEN a < 40 THEN 'x' ELSE 'x' END FROM t",
            "this CASE gives every value the same label; leave it out, or give each interval its own.",
        ),
        (
            "SELECT CASE WHEN a < 40 THEN NULL ELSE 'x' END FROM t",
            "a label of CASE is a text of 1 to 256 characters, not NULL.",
        ),
        (
            "SELECT CASE WHEN a < 40 THEN b ELSE 'x' END FROM t",
            "a label of CASE is a text of 1 to 256 characters, not the column 'b'.",
        ),
        (
            "SELECT CASE WHEN a < 40 THEN 'x' ELSE b + 1 END FROM t",
            "a label of CASE is a text of 1 to 256 characters, not arithmetic.",
        ),
        (
            "SELECT CASE WHEN a < 40 THEN '' ELSE 'x' END FROM t",
            "a label of CASE is a text of 1 to 256 characters, not the value ''.",
        ),
        (
            "SELECT CASE WHEN a < b THEN 'x' ELSE 'y' END FROM t",
            "comparing 'a' with 'b' is not supported; compare a column with a value.",
        ),
        ("SELECT CASE WHEN a IN (1, 2) THEN 'x' ELSE 'y' END FROM t", CASE),
        ("SELECT CASE WHEN NOT a < 40 THEN 'x' ELSE 'y' END FROM t", CASE),
        ("SELECT CASE WHEN a > 60 AND b > 2 THEN 'x' ELSE 'y' END FROM t", CASE),
        (
            "SELECT CASE WHEN a < DATE '2026-01-01' THEN 'x' ELSE 'y' END FROM t",
            "CASE compares with numbers, not with '2026-01-01'.",
        ),
        (
            "SELECT CASE WHEN COUNT(*) > 5 THEN 'x' ELSE 'y' END FROM t",
            "an aggregate cannot stand in a condition on rows; compare a column with a value.",
        ),
        ("SELECT WIDTH_BUCKET(a, 0, 100) FROM t", BUCKET),
        ("SELECT WIDTH_BUCKET(a, 100, 0, 10) FROM t", BUCKETS),
        ("SELECT WIDTH_BUCKET(a, 0, 100, 2.5) FROM t", BUCKETS),
        ("SELECT WIDTH_BUCKET(a, 0, 100, 5000) FROM t", BUCKETS),
        ("SELECT WIDTH_BUCKET(1, 0, 100, 10) FROM t", BUCKET),
        ("SELECT WIDTH_BUCKET(a, b, 100, 10) FROM t", BUCKET),
        ("SELECT WIDTH_BUCKET(a, '0', 100, 10) FROM t", BUCKET),
        ("SELECT a, COUNT(*) FROM t GROUP BY a HAVING a > 5", "'a' is a group column; put its condition into WHERE."),
        (
            "SELECT a, COUNT(*) FROM t GROUP BY a HAVING AVG(b) > 5",
            "HAVING names AVG(b), which the SELECT list does not; add it there.",
        ),
        ("SELECT a, COUNT(*) FROM t GROUP BY a HAVING COUNT(*)", HAVING),
        ("SELECT a, COUNT(*) FROM t GROUP BY a HAVING COUNT(*) > 'x'", HAVING),
        ("SELECT a, COUNT(*) FROM t GROUP BY a HAVING COUNT(*) > COUNT(*)", HAVING),
        (
            "SELECT a, COUNT(*) FROM t GROUP BY a HAVING NOT COUNT(*) > 5",
            "NOT is not supported in HAVING; write the opposite comparison.",
        ),
        ("SELECT a, COUNT(*) FROM t GROUP BY a HAVING COUNT(*) IN (1, 2)", HAVING),
        ("SELECT a, COUNT(*) FROM t GROUP BY a HAVING COUNT(*) IS NULL", HAVING),
        ("SELECT a, COUNT(*) FROM t GROUP BY a HAVING 5 > 3", HAVING),
        ("SELECT a, COUNT(*) FROM t GROUP BY a HAVING COUNT(*) > 5 AND TRUE", HAVING),
        (
            "SELECT a, COUNT(*) FROM t GROUP BY a HAVING COUNT(*) / 2 > 5",
            "arithmetic is not supported in HAVING; name what the SELECT list has.",
        ),
        (
            "SELECT a, HISTOGRAM(b, 5) FROM t GROUP BY a HAVING HISTOGRAM(b, 5) > 5",
            "HISTOGRAM(b, 5) gives several numbers, so HAVING cannot compare groups by it.",
        ),
        (
            "SELECT a, COUNT(*) FROM t GROUP BY a HAVING zz > 5",
            "HAVING names 'zz', which the SELECT list does not; add it there.",
        ),
        ("SELECT a, COUNT(*) FROM t GROUP BY a HAVING COUNT(*) BETWEEN SYMMETRIC 9 AND 1", HAVING),
        (
            "SELECT a, COUNT(*) FROM t GROUP BY a HAVING MAX(b) > 5",
            "the largest value is one patient's own; use PERCENTILE_CONT(0.99) WITHIN GROUP (ORDER BY column).",
        ),
        (
            "SELECT a, COUNT(*) FROM t GROUP BY a HAVING COUNT(*) > 1e999",
            "the number 1e999 is too large or not a number.",
        ),
        (
            "SELECT a, COUNT(*) FROM t GROUP BY a ORDER BY b",
            "ORDER BY names 'b', which the SELECT list does not; add it there.",
        ),
        ("SELECT a, COUNT(*) FROM t GROUP BY a ORDER BY 3", "ORDER BY 3 names no item; the SELECT list has 2."),
        ("SELECT a, COUNT(*) FROM t GROUP BY a ORDER BY 0", "ORDER BY 0 names no item; the SELECT list has 2."),
        (
            "SELECT a, COUNT(*) FROM t GROUP BY a ORDER BY 'a'",
            "ORDER BY takes aggregates, group columns, aliases or positions of the SELECT list, not the value 'a'.",
        ),
        (
            "SELECT a, COUNT(*) FROM t GROUP BY a ORDER BY -1",
            "ORDER BY takes aggregates, group columns, aliases or positions of the SELECT list, not arithmetic.",
        ),
        (
            "SELECT a, COUNT(*) FROM t GROUP BY a ORDER BY COUNT(*) + 1",
            "arithmetic is not supported in ORDER BY; name what the SELECT list has.",
        ),
        (
            "SELECT a, COUNT(*) FROM t GROUP BY a ORDER BY RANDOM()",
            "the function RAND is not supported in ORDER BY; name what the SELECT list has.",
        ),
        (
            "SELECT a, COUNT(*) FROM t GROUP BY a ORDER BY ALL",
            "ORDER BY names 'ALL', which the SELECT list does not; add it there.",
        ),
        (
            "SELECT a, COUNT(*) FROM t GROUP BY a ORDER BY AVG(b)",
            "ORDER BY names AVG(b), which the SELECT list does not; add it there.",
        ),
        (
            "SELECT HISTOGRAM(b, 5) FROM t ORDER BY HISTOGRAM(b, 5)",
            "HISTOGRAM(b, 5) gives several numbers, so ORDER BY cannot compare groups by it.",
        ),
        (
            "SELECT a, CORR(b, c) FROM t GROUP BY a ORDER BY 2",
            "CORR(b, c) gives several numbers, so ORDER BY cannot compare groups by it.",
        ),
        (
            "SELECT a, COUNT(*) FROM t GROUP BY a ORDER BY a WITH FILL",
            "ORDER BY takes aggregates, group columns, aliases or positions of the SELECT list, and nothing else.",
        ),
        ("SELECT a, COUNT(*) FROM t GROUP BY a SORT BY a", "SORT BY is not supported; use ORDER BY."),
        ("SELECT a, COUNT(*) FROM t GROUP BY a LIMIT 0", LIMIT),
        ("SELECT a, COUNT(*) FROM t GROUP BY a LIMIT -1", LIMIT),
        ("SELECT a, COUNT(*) FROM t GROUP BY a LIMIT 2.5", LIMIT),
        ("SELECT a, COUNT(*) FROM t GROUP BY a LIMIT 'x'", LIMIT),
        ("SELECT a, COUNT(*) FROM t GROUP BY a LIMIT ALL", LIMIT),
        ("SELECT a, COUNT(*) FROM t GROUP BY a LIMIT 10 PERCENT", LIMIT),
        ("SELECT a, COUNT(*) FROM t GROUP BY a LIMIT 5 WITH TIES", LIMIT),
        ("SELECT a, COUNT(*) FROM t GROUP BY a LIMIT 5 BY a", LIMIT),
        (
            "SELECT a, COUNT(*) FROM t GROUP BY a LIMIT 2, 5",
            "OFFSET is not supported; LIMIT counts from the first group, and all of them are in the answer.",
        ),
        (
            "SELECT a, COUNT(*) FROM t GROUP BY a LIMIT 5 OFFSET 2",
            "OFFSET is not supported; LIMIT counts from the first group, and all of them are in the answer.",
        ),
        ("SELECT a, COUNT(*) FROM t GROUP BY a LIMIT (SELECT 1)", LIMIT),
        (
            "SELECT TOP 5 a, COUNT(*) FROM t GROUP BY a",
            "the SQL cannot be read near 5; a question is SELECT [group columns,] aggregates such as COUNT(*), AVG(column) or MEDIAN(column) FROM table [WHERE condition] [GROUP BY columns] [HAVING condition] [ORDER BY columns] [LIMIT number].",
        ),
        (
            "SELECT a, COUNT(*) FROM t GROUP BY a QUALIFY COUNT(*) > 5",
            "QUALIFY is not supported; use HAVING with an aggregate of the SELECT list.",
        ),
        ("SELECT a AS x, b AS x, COUNT(*) FROM t GROUP BY a, b", "an alias is a name of its own; call 'x' otherwise."),
        ("SELECT a, COUNT(*) AS n FROM t GROUP BY n", "'n' is an aggregate; GROUP BY takes columns."),
        ("SELECT a, COUNT(*), COUNT(*) AS n FROM t GROUP BY a", "the SELECT list names COUNT(*) twice; remove one."),
        ("SELECT MEDIAN(a), QUANTILE(a, 0.5) FROM t", "the SELECT list names MEDIAN(a) twice; remove one."),
        (
            "SELECT DATE_TRUNC('month', d), COUNT(*) FROM t",
            "the SELECT list makes groups of 'd' that GROUP BY does not name; give them an alias and group by it.",
        ),
        ("SELECT COUNT(*) FROM t GROUP BY DATE_TRUNC('month', d)", UNLISTED),
        ("SELECT d, COUNT(*) FROM t GROUP BY DATE_TRUNC('month', d)", UNLISTED),
        ("SELECT DATE_TRUNC('month', d), COUNT(*) FROM t GROUP BY d", UNLISTED),
        (
            "SELECT CASE WHEN a < 4 THEN 'x' ELSE 'y' END, COUNT(*) FROM t GROUP BY CASE WHEN a < 5 THEN 'x' ELSE 'y' END",
            "GROUP BY makes groups of 'a' that the SELECT list does not name; give them an alias there and group by it.",
        ),
        (
            "SELECT CASE WHEN a < 4 THEN 'x' ELSE 'y' END, COUNT(*) FROM t",
            "the SELECT list makes groups of 'a' that GROUP BY does not name; give them an alias and group by it.",
        ),
        (
            "SELECT a, COUNT(*) FROM t GROUP BY YEAR(d)",
            "YEAR is not supported; use DATE_TRUNC('month', column), a series by month.",
        ),
        (
            "SELECT a, COUNT(*) FROM t GROUP BY MEDIAN(a)",
            "GROUP BY takes the names of columns, not the function MEDIAN.",
        ),
        ("SELECT a, COUNT(*) FROM t GROUP BY CUBE (a)", "GROUP BY takes the names of columns, not CUBE."),
        (
            "SELECT a, COUNT(*) FROM t GROUP BY GROUPING SETS ((a))",
            "GROUP BY takes the names of columns, not GROUPINGSETS.",
        ),
        (
            "SELECT COUNT(*) FROM t WHERE MEDIAN(a) > 5",
            "an aggregate cannot stand in a condition on rows; compare a column with a value.",
        ),
        (
            "SELECT COUNT(*) FROM t WHERE CLAMP(a, 1, 2) > 5",
            "the function CLAMP is not supported in WHERE; use =, <>, <, <=, >, >=, IN, BETWEEN, IS NULL, AND, OR and NOT.",
        ),
        (
            "SELECT COUNT(*) FROM t WHERE DATE_TRUNC('month', d) = '2026-01-01'",
            "the function DATE_TRUNC is not supported in WHERE; use =, <>, <, <=, >, >=, IN, BETWEEN, IS NULL, AND, OR and NOT.",
        ),
        (
            "SELECT COUNT(*) FROM t WHERE PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY a) > 5",
            "an aggregate cannot stand in a condition on rows; compare a column with a value.",
        ),
    ],
)
def test_what_is_outside_gets_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(QueryMistaken) as fault:
        parse(text)
    assert fault.value.message == sentence
    assert sentence.isprintable()
    assert sentence.endswith(".")
