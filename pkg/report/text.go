package report

import (
	"fmt"
	"strings"

	"github.com/kubefusion/fusionctl/internal/visible"
)

// counted is a number with its noun: 1 error, 2 errors.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

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

// cell is a text within a table of Markdown.
func cell(value any) string {
	text := visible.Text(fmt.Sprint(value))
	text = strings.NewReplacer("|", `\|`, "<", "&lt;", "\n", " ", "\r", " ").Replace(text)
	if text == "" {
		return "-"
	}
	return text
}
