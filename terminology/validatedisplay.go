package terminology

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// checkDisplay checks the display of a coding against those that a concept has, in the languages that were
// asked for. Case does not count.
func (v *validator) checkDisplay(c *coding, texts []shownText) {
	if c.display == "" || len(texts) == 0 {
		return
	}
	var valid, listed []*shownText
	var same *shownText
	for i := range texts {
		t := &texts[i]
		if equalDisplay(t.value, c.display) && (same == nil || v.speaks(t.language)) {
			same = t
		}
		if v.speaks(t.language) {
			valid = append(valid, t)
			if t.isDisplay() {
				listed = append(listed, t)
			}
		}
	}
	switch {
	case same != nil && slices.Contains(valid, same):
		v.checkStanding(c, same, listed)
	case len(valid) > 0:
		v.wrongDisplay(c, listed)
	case same != nil:
		v.note("information", "invalid", "invalid-display", "NO_VALID_DISPLAY_FOUND_NONE_FOR_LANG_OK", c, "display", true, fmt.Sprintf(
			"There are no valid display names found for the code %s#%s for language(s) '%s'. The display is '%s' which is a valid display for the default language",
			c.system, c.code, v.language, c.display))
	default:
		v.note(v.displaySeverity(), "invalid", "invalid-display", "NO_VALID_DISPLAY_FOUND_NONE_FOR_LANG_ERR", c, "display", true, fmt.Sprintf(
			"Wrong Display Name '%s' for %s#%s. There are no valid display names found for language(s) '%s'. Default display is '%s'",
			c.display, c.system, c.code, v.language, texts[max(0, firstDisplay(texts))].value))
	}
}

// speaks reports whether displays in a language are valid: those in a language that was asked for, and
// those of which the language is not known.
func (v *validator) speaks(language string) bool {
	if len(v.languages.ranges) == 0 || language == "" {
		return true
	}
	return slices.ContainsFunc(v.languages.ranges, func(r languageRange) bool {
		return r.tag == "*" || likeness(language, r.tag) > languageDiffers
	})
}

// displaySeverity returns how bad a wrong display is.
func (v *validator) displaySeverity() string {
	if v.lenient {
		return "warning"
	}
	return "error"
}

// wrongDisplay notes that a display is none of those that are valid.
func (v *validator) wrongDisplay(c *coding, valid []*shownText) {
	var choices []string
	told := make(map[string]bool)
	for _, t := range valid {
		choice := "'" + string(t.value) + "'"
		if t.language != "" {
			choice += " (" + t.language + ")"
		}
		if !told[choice] {
			told[choice] = true
			choices = append(choices, choice)
		}
	}
	is := "Valid display is "
	if n := len(choices); n > 1 {
		is += fmt.Sprintf("one of %d choices: ", n)
		choices = []string{strings.Join(choices[:n-1], ", ") + " or " + choices[n-1]}
	}
	language := v.language
	if language == "" {
		language = "--"
	}
	id, wrong := "Display_Name_for__should_be_one_of__instead_of", "Display Name"
	if slices.ContainsFunc(valid, func(t *shownText) bool { return equalButForSpaces(t.value, c.display) }) {
		id, wrong = "Display_Name_WS_for__should_be_one_of__instead_of", "whitespace in Display Name"
	}
	v.note(v.displaySeverity(), "invalid", "invalid-display", id, c, "display", true,
		fmt.Sprintf("Wrong %s '%s' for %s#%s. %s%s (for the language(s) '%s')", wrong, c.display, c.system, c.code, is, strings.Join(choices, ""), language))
}

// checkStanding notes that a display is one that should not be used any more.
func (v *validator) checkStanding(c *coding, t *shownText, valid []*shownText) {
	if !bytes.Contains(t.extension, []byte(`"withdrawn"`)) && !bytes.Contains(t.extension, []byte(`"deprecated"`)) {
		return
	}
	var correct []string
	for _, other := range valid {
		if other.display {
			correct = append(correct, `"`+string(other.value)+`"`)
		}
	}
	v.note("warning", "invalid", "display-comment", "INACTIVE_DISPLAY_FOUND", c, "display", false, fmt.Sprintf(
		"'%s' is no longer considered a correct display for code '%s' (status = deprecated). The correct display is one of %s.",
		c.display, c.code, strings.Join(correct, ", ")))
}

// equalDisplay compares displays without regard to case.
func equalDisplay(have []byte, given string) bool { return strings.EqualFold(string(have), given) }

// equalButForSpaces compares displays without regard to case, and to where and how wide spaces are between words.
func equalButForSpaces(have []byte, given string) bool {
	return strings.EqualFold(strings.Join(strings.Fields(string(have)), " "), strings.Join(strings.Fields(given), " "))
}
