package validate

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// displayChecker checks the displays of codings.
type displayChecker struct {
	notes     *notes
	languages codesystem.Languages
	language  string // as requested
	lenient   bool   // a wrong display is only a warning
}

// check compares the display of a coding with those of the concept in the requested languages, regardless of case. Of a
// user-assigned code, others may be right.
func (d *displayChecker) check(c *parameters.Coding, texts []codesystem.Text, userAssigned bool) {
	if c.Display == "" || len(texts) == 0 {
		return
	}
	var valid, listed []*codesystem.Text
	var same *codesystem.Text
	for i := range texts {
		t := &texts[i]
		if equalDisplay(t.Value, c.Display) && (same == nil || d.speaks(t.Language)) {
			same = t
		}
		if d.speaks(t.Language) {
			valid = append(valid, t)
			if t.IsDisplay() {
				listed = append(listed, t)
			}
		}
	}
	switch {
	case same != nil && slices.Contains(valid, same):
		d.checkStanding(c, same, listed)
	case len(valid) > 0:
		d.wrong(c, listed, userAssigned)
	case same != nil:
		d.notes.note("information", "invalid", "invalid-display", "NO_VALID_DISPLAY_FOUND_NONE_FOR_LANG_OK", c, "display", true, fmt.Sprintf(
			"There are no valid display names found for the code %s#%s for language(s) '%s'. The display is '%s' which is a valid display for the default language",
			c.System, c.Code, d.language, c.Display))
	default:
		d.notes.note(d.severity(), "invalid", "invalid-display", "NO_VALID_DISPLAY_FOUND_NONE_FOR_LANG_ERR", c, "display", true, fmt.Sprintf(
			"Wrong Display Name '%s' for %s#%s. There are no valid display names found for language(s) '%s'. Default display is '%s'",
			c.Display, c.System, c.Code, d.language, texts[max(0, codesystem.FirstDisplay(texts))].Value))
	}
}

// checkStandIn notes that a display is not the one name that a stand-in has, which may be followed by a remark in brackets.
func (d *displayChecker) checkStandIn(c *parameters.Coding, name []byte) {
	bare := name
	if at := bytes.LastIndex(name, []byte(" (")); at >= 0 {
		bare = name[:at]
	}
	if c.Display != "" && !equalDisplay(name, c.Display) && !equalDisplay(bare, c.Display) {
		d.notes.note("information", "informational", "display-comment", "", c, "display", true, fmt.Sprintf(
			"The display '%s' of the code %s#%s was not checked: only the name '%s' is known here", c.Display, c.System, c.Code, name))
	}
}

// speaks reports whether displays in a language are valid: it was requested, or is not known.
func (d *displayChecker) speaks(language string) bool {
	return language == "" || d.languages.Cover(language)
}

func (d *displayChecker) severity() string {
	if d.lenient {
		return "warning"
	}
	return "error"
}

// wrong notes that a display is not one of the valid ones.
func (d *displayChecker) wrong(c *parameters.Coding, valid []*codesystem.Text, userAssigned bool) {
	var choices []string
	told := make(map[string]bool)
	for _, t := range valid {
		choice := "'" + string(t.Value) + "'"
		if t.Language != "" {
			choice += " (" + t.Language + ")"
		}
		if !told[choice] {
			told[choice] = true
			choices = append(choices, choice)
		}
	}
	is := "display is "
	if n := len(choices); n > 1 {
		is += fmt.Sprintf("one of %d choices: ", n)
		choices = []string{strings.Join(choices[:n-1], ", ") + " or " + choices[n-1]}
	}
	among := fmt.Sprintf("%s%s (for the language(s) '%s')", is, strings.Join(choices, ""), cmp.Or(d.language, "--"))
	if userAssigned {
		d.notes.note("information", "invalid", "invalid-display", "Display_Name_Not_Fixed_use_Supplement", c, "display", true, fmt.Sprintf(
			"The display name '%s' is not a known display name for %s#%s. Known %s. Use a supplement to define displays for user assigned codes",
			c.Display, c.System, c.Code, among))
		return
	}
	id, wrong := "Display_Name_for__should_be_one_of__instead_of", "Display Name"
	if slices.ContainsFunc(valid, func(t *codesystem.Text) bool { return equalButForSpaces(t.Value, c.Display) }) {
		id, wrong = "Display_Name_WS_for__should_be_one_of__instead_of", "whitespace in Display Name"
	}
	d.notes.note(d.severity(), "invalid", "invalid-display", id, c, "display", true,
		fmt.Sprintf("Wrong %s '%s' for %s#%s. Valid %s", wrong, c.Display, c.System, c.Code, among))
}

// checkStanding notes that a display is deprecated or withdrawn.
func (d *displayChecker) checkStanding(c *parameters.Coding, t *codesystem.Text, valid []*codesystem.Text) {
	if !bytes.Contains(t.Extension, []byte(`"withdrawn"`)) && !bytes.Contains(t.Extension, []byte(`"deprecated"`)) {
		return
	}
	var correct []string
	for _, other := range valid {
		if other.Display {
			correct = append(correct, `"`+string(other.Value)+`"`)
		}
	}
	d.notes.note("warning", "invalid", "display-comment", "INACTIVE_DISPLAY_FOUND", c, "display", false, fmt.Sprintf(
		"'%s' is no longer considered a correct display for code '%s' (status = deprecated). The correct display is one of %s.",
		c.Display, c.Code, strings.Join(correct, ", ")))
}

func equalDisplay(have []byte, given string) bool { return strings.EqualFold(string(have), given) }

// equalButForSpaces compares displays regardless of case and of the spaces around words.
func equalButForSpaces(have []byte, given string) bool {
	return strings.EqualFold(strings.Join(strings.Fields(string(have)), " "), strings.Join(strings.Fields(given), " "))
}
