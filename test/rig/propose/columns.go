package main

import (
	"slices"
	"strconv"
	"strings"
)

// shape says how a column of a table names minors.
type shape int

const (
	minors shape = iota // 6-9,12
	values              // 6-9=a 10-36=b
	names               // a=6-9 b: b has no minors of its own
	number              // 36
)

// shapes are the columns of each table that name minors. A row with none of them left holds in no minor.
var shapes = map[string]map[int]shape{
	"access":               {2: names, 3: names, 4: names},
	"admission":            {1: minors, 2: minors},
	"admission-order":      {0: minors},
	"allocators":           {0: minors},
	"annotations":          {4: minors, 5: minors},
	"api":                  {4: minors, 5: minors, 6: names},
	"api-by-name":          {1: minors},
	"api-deprecated":       {2: number},
	"authorization":        {1: minors},
	"behaviours":           {1: minors, 2: values},
	"controllers":          {2: values, 3: values, 4: minors, 5: values},
	"crd-fields":           {1: minors},
	"deprecations":         {2: minors},
	"encryption-providers": {1: minors},
	"field-gates":          {3: minors},
	"fields":               {2: values},
	"flag-aliases":         {2: minors},
	"flag-values":          {2: minors},
	"flags":                {2: minors, 3: minors, 4: minors, 5: values},
	"garbage":              {0: minors},
	"gates":                {1: minors, 2: values},
	"gates-first":          {1: values, 2: values},
	"gates-only":           {2: minors},
	"kinds":                {2: minors},
	"labels":               {2: minors, 3: minors},
	"locks":                {0: minors},
	"owners":               {3: values},
	"patches":              {1: values},
	"reconcilers":          {1: minors},
	"releases":             {0: number},
	"required":             {2: minors},
	"resources":            {4: minors, 5: values, 6: values},
	"startup":              {2: minors},
	"values":               {3: minors},
}

// carried are the tables, or columns of tables, that no program of a release prints: people read sources for them. What
// holds in the minor before is proposed for the new one, and the report lists which of the sources changed.
var carried = map[string][]int{
	"access": {2, 3, 4}, "allocators": {0}, "annotations": {4, 5}, "api-by-name": {1}, "behaviours": {1},
	"crd-fields":           {1},
	"encryption-providers": {1},
	"field-gates":          {3}, "flag-aliases": {2}, "flag-values": {2}, "garbage": {0}, "labels": {2, 3},
	"locks": {0}, "owners": {3},
	"resources": {4, 6}, "startup": {2}, "values": {3},
}

// remove takes a minor out of all tables, as if it had never been added.
func (all tables) remove(minor int) {
	for name, t := range all {
		var left [][]string
		for _, row := range t.rows {
			if removeFrom(row, shapes[name], minor) {
				left = append(left, row)
			}
		}
		t.rows = left
	}
	known := map[string]bool{}
	for _, row := range all["controllers"].rows {
		known[row[0]] = true
	}
	all["access"].rows = slices.DeleteFunc(all["access"].rows, func(row []string) bool { return !known[row[0]] })
}

// removeFrom reports whether something of the row is left: in any column whose minors are those of the row.
func removeFrom(row []string, shapes map[int]shape, minor int) bool {
	named, left := false, false
	for column, s := range shapes {
		before := row[column]
		switch s {
		case minors:
			row[column] = printMinors(without(parseMinors(before), minor))
		case values:
			row[column] = withoutValue(before, minor)
		case names:
			for _, word := range strings.Fields(before) {
				if name, _, ok := strings.Cut(word, "="); ok {
					row[column] = withName(row[column], name, minor, false)
				}
			}
			continue // does not decide whether the row holds
		case number:
			return before != strconv.Itoa(minor)
		}
		named, left = named || before != "-", left || row[column] != "-"
	}
	return !named || left
}

// carry makes hold in the minor what people read for the one before.
func (all tables) carry(minor int) {
	for name, columns := range carried {
		for _, row := range all[name].rows {
			for _, column := range columns {
				carryColumn(row, column, shapes[name][column], minor)
			}
		}
	}
}

func carryColumn(row []string, column int, s shape, minor int) {
	switch s {
	case minors:
		if holds(row[column], minor-1) {
			row[column] = with(row[column], minor)
		}
	case values:
		if value, ok := valueAt(row[column], minor-1); ok {
			row[column] = withValue(row[column], minor, value)
		}
	case names:
		for _, word := range strings.Fields(row[column]) {
			if name, m, ok := strings.Cut(word, "="); ok && holds(m, minor-1) {
				row[column] = withName(row[column], name, minor, true)
			}
		}
	}
}
