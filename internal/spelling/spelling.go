// Package spelling finds the word that was probably meant.
package spelling

import "strings"

// Words and candidates may be those of files from others: each letter is compared with each. What is longer is no name
// that a person typed, and among more candidates none is looked for.
const (
	limitBytes      = 128
	limitCandidates = 1000
)

// Nearest returns the candidate that is closest to the word, and whether one is close enough to suggest. Letter case,
// dashes and underscores do not count; otherwise up to a third of the letters may be wrong, missing, added or swapped
// with their neighbour. Of equally close candidates the first is returned: pass them in a fixed order.
func Nearest(word string, candidates []string) (string, bool) {
	if len(word) > limitBytes {
		return "", false
	}
	folded := fold(word)
	best, bestDistance := "", len([]rune(folded))/3+1
	for _, candidate := range candidates[:min(len(candidates), limitCandidates)] {
		if len(candidate) > limitBytes {
			continue
		}
		if d := distance(folded, fold(candidate)); d < bestDistance || d == 0 && best == "" {
			best, bestDistance = candidate, d
		}
	}
	return best, best != ""
}

var separators = strings.NewReplacer("-", "", "_", "")

func fold(word string) string { return separators.Replace(strings.ToLower(word)) }

// distance is the optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours.
func distance(a, b string) int {
	s, t := []rune(a), []rune(b)
	if abs(len(s)-len(t)) > max(len(s), len(t))/2 {
		return max(len(s), len(t)) // too far apart to be worth the table
	}
	before, last, row := make([]int, len(t)+1), make([]int, len(t)+1), make([]int, len(t)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(s); i++ {
		row[0] = i
		for j := 1; j <= len(t); j++ {
			cost := 1
			if s[i-1] == t[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && s[i-1] == t[j-2] && s[i-2] == t[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(t)]
}

func abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}
