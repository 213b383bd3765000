package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// parseStoreURLs reads values of --endpoints, STORE=URL[,URL...]; a part with another STORE= in front starts the next
// store. A store that is none of the given ones is refused.
func parseStoreURLs(values, stores []string) (map[string][]string, error) {
	result := map[string][]string{}
	for _, value := range values {
		store := ""
		for part := range strings.SplitSeq(value, ",") {
			if name, rest, ok := strings.Cut(part, "="); ok && !strings.Contains(name, "/") {
				store, part = name, rest
			}
			if store == "" || part == "" {
				return nil, usagef("--endpoints %q: want STORE=URL[,URL...]", withoutUser(value))
			}
			if !slices.Contains(stores, store) {
				return nil, noSuchStore("--endpoints", withoutUser(value), store, stores)
			}
			result[store] = append(result[store], part)
		}
	}
	return result, nil
}

// parseStoreFiles reads values of --snapshot, STORE=FILE. Another of the given stores may follow a comma; any other
// comma belongs to the file's name.
func parseStoreFiles(values, stores []string) (map[string]string, error) {
	result := map[string]string{}
	for _, value := range values {
		rest := value
		for rest != "" {
			store, file, ok := strings.Cut(rest, "=")
			if !ok || store == "" {
				return nil, usagef("--snapshot %q: want STORE=FILE", value)
			}
			if !slices.Contains(stores, store) {
				return nil, noSuchStore("--snapshot", value, store, stores)
			}
			rest = ""
			for i := range file {
				next, _, ok := strings.Cut(file[i+1:], "=")
				if file[i] == ',' && ok && slices.Contains(stores, next) {
					file, rest = file[:i], file[i+1:]
					break
				}
			}
			if file == "" {
				return nil, usagef("--snapshot %q: want STORE=FILE", value)
			}
			if other, ok := result[store]; ok {
				return nil, usagef("--snapshot: two files for store %s: %q and %q", store, other, file)
			}
			result[store] = file
		}
	}
	return result, nil
}

func noSuchStore(flag, value, store string, stores []string) error {
	return badInput(fmt.Errorf("%s %q: the spec has no store %q", flag, value, store),
		"its stores are "+strings.Join(stores, ", "))
}

// userInURL is what a URL has before its host: it may be a password.
var userInURL = regexp.MustCompile(`(://|=|^)[^/,]*@`)

// withoutUser is a list of URLs as it may be printed.
func withoutUser(urls string) string { return userInURL.ReplaceAllString(urls, "${1}...@") }
