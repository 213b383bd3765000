package report

import (
	"fmt"
	"regexp"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// size is a number of bytes for people.
func size(bytes int64) string {
	const unit = 1024
	if bytes < unit {
		return fmt.Sprintf("%d B", bytes)
	}
	value, prefix := float64(bytes)/unit, 0
	for value >= unit && prefix < 3 {
		value /= unit
		prefix++
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGT"[prefix])
}

// marked is a text that is Markdown already.
type marked string

// cell is a text within a line of Markdown, or a cell of a table.
func cell(value any) marked {
	if text, ok := value.(marked); ok {
		return text
	}
	text := visible.Markdown(fmt.Sprint(value))
	if text == "" {
		return "-"
	}
	return marked(text)
}

var plain = regexp.MustCompile(`^[-A-Za-z0-9_.,:=/]+$`)

// code is a cell in the type of code, if it is only that.
func code(text string) marked {
	if !plain.MatchString(text) {
		return cell(text)
	}
	return marked("`" + text + "`")
}

// unchanged says of a component why its flags are not compared one by one.
func unchanged(state render.State) string {
	switch state {
	case render.New:
		return "Nothing starts it today; its flags are above."
	case render.Missing:
		return "The spec says that it runs already, and nothing there starts it."
	}
	return "No flag differs."
}
