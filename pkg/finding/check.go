package finding

import (
	"fmt"
	"strings"

	"github.com/kubefusion/fusionctl/internal/prose"
)

// Check is one thing that is looked for where a plan alone cannot show it, with its documentation.
type Check struct {
	ID       string   `json:"id"`       // of the danger that it proves; from FUS230 on what is seen nowhere else
	Title    string   `json:"title"`    // what is found, in a few words
	Severity Severity `json:"severity"` // at worst
	Why      string   `json:"why"`      // mechanism and consequence, in plain words
}

// Text is the documentation of the check for people; where says what is looked at, and by which verb.
func (c Check) Text(where string) string {
	return fmt.Sprintf("%s  %s\nseverity: %s at worst, in %s\n\n%s\n", c.ID, c.Title, c.Severity, where, Wrap(c.Why, TextWidth))
}

// TextWidth is where lines of prose break on a terminal.
const TextWidth = 100

// Wrap breaks prose at spaces into lines of at most so many characters; a longer word has a line of its own. White space between words
// is one space.
func Wrap(text string, width int) string {
	return strings.Join(prose.Wrap(strings.Fields(text), width), "\n")
}
