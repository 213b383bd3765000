package storage

import (
	"encoding/json"
	"errors"
)

// errJSON stands for every syntax error of a stored JSON value: it suffices to know that the value cannot be read.
var errJSON = errors.New("not JSON")

// JSONMembers calls visit with every member of the JSON object that starts at data[0], until visit returns false: the
// key without its quotes, the value as it stands. It does not decode, and allocates only where a key holds an escape.
// Errors: the value is no object, or not JSON as far as it was read.
func JSONMembers(data []byte, visit func(key, value []byte) bool) error {
	i := skipSpace(data, 0)
	if i >= len(data) || data[i] != '{' {
		return errJSON
	}
	i = skipSpace(data, i+1)
	if i < len(data) && data[i] == '}' {
		return nil
	}
	for {
		keyEnd, err := skipString(data, i)
		if err != nil {
			return err
		}
		key := jsonString(data[i:keyEnd])
		i = skipSpace(data, keyEnd)
		if i >= len(data) || data[i] != ':' {
			return errJSON
		}
		i = skipSpace(data, i+1)
		end, err := skipValue(data, i)
		if err != nil {
			return err
		}
		if !visit(key, data[i:end]) {
			return nil
		}
		i = skipSpace(data, end)
		if i >= len(data) {
			return errJSON
		}
		if data[i] == '}' {
			return nil
		}
		if data[i] != ',' {
			return errJSON
		}
		i = skipSpace(data, i+1)
	}
}

// JSONElements calls visit with every element of the JSON array that starts at data[0], until visit returns false.
// Errors: the value is no array, or not JSON as far as it was read.
func JSONElements(data []byte, visit func(value []byte) bool) error {
	i := skipSpace(data, 0)
	if i >= len(data) || data[i] != '[' {
		return errJSON
	}
	i = skipSpace(data, i+1)
	if i < len(data) && data[i] == ']' {
		return nil
	}
	for {
		end, err := skipValue(data, i)
		if err != nil {
			return err
		}
		if !visit(data[i:end]) {
			return nil
		}
		i = skipSpace(data, end)
		if i >= len(data) {
			return errJSON
		}
		if data[i] == ']' {
			return nil
		}
		if data[i] != ',' {
			return errJSON
		}
		i = skipSpace(data, i+1)
	}
}

// jsonString returns the contents of a JSON string, nil for another value.
func jsonString(value []byte) []byte {
	if len(value) < 2 || value[0] != '"' {
		return nil
	}
	inner := value[1 : len(value)-1]
	for _, c := range inner {
		if c == '\\' {
			var s string
			if json.Unmarshal(value, &s) != nil {
				return nil
			}
			return []byte(s)
		}
	}
	return inner
}

func skipSpace(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\t' || data[i] == '\n' || data[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns the index behind the value that starts at data[i]. It follows brackets and strings and leaves the
// spelling of numbers and words to its callers.
func skipValue(data []byte, i int) (int, error) {
	if i >= len(data) {
		return 0, errJSON
	}
	switch data[i] {
	case '"':
		return skipString(data, i)
	case '{', '[':
		return skipBrackets(data, i)
	case ',', ':', '}', ']':
		return 0, errJSON
	}
	for i < len(data) {
		switch data[i] {
		case ',', ':', '}', ']', '"', '{', '[', ' ', '\t', '\n', '\r':
			return i, nil
		}
		i++
	}
	return i, nil
}

func skipBrackets(data []byte, i int) (int, error) {
	depth := 0
	for i < len(data) {
		switch data[i] {
		case '"':
			end, err := skipString(data, i)
			if err != nil {
				return 0, err
			}
			i = end
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1, nil
			}
		}
		i++
	}
	return 0, errJSON
}

func skipString(data []byte, i int) (int, error) {
	if i >= len(data) || data[i] != '"' {
		return 0, errJSON
	}
	for i++; i < len(data); i++ {
		switch data[i] {
		case '"':
			return i + 1, nil
		case '\\':
			i++
		}
	}
	return 0, errJSON
}
