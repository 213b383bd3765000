package site

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kubefusion/fusionctl/internal/cli"
)

// Commands gives a page of Markdown for each command, from its help, as commands/fusionctl-etcd-check.md.
func Commands() map[string][]byte {
	pages := map[string][]byte{}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Hidden || cmd.Name() == "help" {
			return
		}
		pages[commandPage(cmd)] = commandText(cmd)
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(cli.Tree())
	return pages
}

func commandPage(cmd *cobra.Command) string {
	return "commands/" + strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".md"
}

func commandText(cmd *cobra.Command) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s.\n\n", cmd.CommandPath(), cmd.Short)
	block := func(text string) { fmt.Fprintf(&b, "````\n%s\n````\n\n", strings.TrimRight(text, "\n")) }
	if cmd.Runnable() && !cmd.HasSubCommands() {
		block(cmd.UseLine())
	}
	for _, paragraph := range strings.Split(cmd.Long, "\n\n") {
		if strings.HasPrefix(paragraph, " ") || strings.HasPrefix(paragraph, "\t") {
			block(paragraph)
		} else if paragraph != "" {
			fmt.Fprintf(&b, "%s\n\n", escaped(paragraph))
		}
	}
	if cmd.Example != "" {
		b.WriteString("## Examples\n\n")
		block(cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString("## Subcommands\n\n| command | |\n|---|---|\n")
		for _, child := range cmd.Commands() {
			if !child.Hidden && child.Name() != "help" {
				fmt.Fprintf(&b, "| [%s](../%s) | %s |\n", child.CommandPath(), commandPage(child), cell(child.Short))
			}
		}
		b.WriteString("\n")
	}
	flags := func(title string, set *pflag.FlagSet) {
		if !set.HasAvailableFlags() {
			return
		}
		fmt.Fprintf(&b, "## %s\n\n| flag | default | |\n|---|---|---|\n", title)
		set.VisitAll(func(f *pflag.Flag) {
			if f.Hidden {
				return
			}
			name := "--" + f.Name
			if f.Shorthand != "" {
				name = "-" + f.Shorthand + ", " + name
			}
			value := ""
			if f.DefValue != "" && f.DefValue != "[]" && f.DefValue != "false" {
				value = "`" + f.DefValue + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, value, cell(f.Usage))
		})
		b.WriteString("\n")
	}
	flags("Flags", cmd.NonInheritedFlags())
	flags("Flags of every command", cmd.InheritedFlags())
	if cmd.HasParent() {
		fmt.Fprintf(&b, "See also [%s](../%s).\n", cmd.Parent().CommandPath(), commandPage(cmd.Parent()))
	}
	return []byte(b.String())
}

var special = strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "<", `\<`, "|",
	`\|`,
	"#", `\#`, "~", `\~`)

// escaped is a text in which nothing is Markdown.
func escaped(text string) string { return special.Replace(text) }

func cell(text string) string { return strings.ReplaceAll(escaped(text), "\n", " ") }
