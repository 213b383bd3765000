package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// enumFlag adds a flag that takes one of a list of words; the list serves the help text, the check and the shell's
// completion. The first word is the default.
func enumFlag(cmd *cobra.Command, target *string, name, shorthand, usage string, words ...string) {
	*target = words[0]
	cmd.Flags().VarP(&enumValue{target: target, words: words}, name, shorthand, usage+": "+strings.Join(words, ", "))
	err := cmd.RegisterFlagCompletionFunc(
		name, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return words, cobra.ShellCompDirectiveNoFileComp
		})
	if err != nil {
		panic("cli: internal error: " + err.Error())
	}
}

type enumValue struct {
	target *string
	words  []string
}

func (v *enumValue) String() string {
	if v.target == nil {
		return ""
	}
	return *v.target
}

func (v *enumValue) Set(s string) error {
	if !slices.Contains(v.words, s) {
		return fmt.Errorf("want one of %s", strings.Join(v.words, ", "))
	}
	*v.target = s
	return nil
}

func (v *enumValue) Type() string { return "string" }

// words are the values as enumFlag takes them.
func words[T ~string](values []T) []string {
	result := make([]string, len(values))
	for i, v := range values {
		result[i] = string(v)
	}
	return result
}
