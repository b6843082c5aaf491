package authorizetest

import (
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// Form is the form of a page, with the values that it comes with.
type Form struct {
	Action string // where the form is sent to. Empty: the page has no form.
	// Fields are what is sent, checkboxes as if they were checked, but radio buttons only if
	// they are.
	Fields url.Values
}

var (
	formTag  = regexp.MustCompile(`<form method="post" action="([^"]*)">`)
	inputTag = regexp.MustCompile(`<input (type="radio")?[^>]*?name="([^"]*)"(?: value="([^"]*)")?( checked)?`)
)

// ReadForm reads the form of a page, as a browser does.
func ReadForm(page string) Form {
	form := Form{Fields: url.Values{}}
	if tag := formTag.FindStringSubmatch(page); tag != nil {
		form.Action = html.UnescapeString(tag[1])
	}
	for _, input := range inputTag.FindAllStringSubmatch(page, -1) {
		if isRadio, checked := input[1] != "", input[4] != ""; checked || !isRadio {
			form.Fields.Set(html.UnescapeString(input[2]), html.UnescapeString(input[3]))
		}
	}
	return form
}

// Field is what the form of a page sends under a name.
func Field(t testing.TB, page, name string) string {
	t.Helper()
	form := ReadForm(page)
	if !form.Fields.Has(name) {
		t.Fatalf("no form with the field %s: %s", name, page)
	}
	return form.Fields.Get(name)
}

// TickedForm is what the form of a consent page sends if nothing is changed.
func TickedForm(page string) url.Values {
	form := ReadForm(page).Fields
	for name := range form {
		if strings.HasPrefix(name, "may ") && !strings.Contains(strings.ReplaceAll(page, "&#43;", "+"), `name="`+name+`" value="yes" checked>`) {
			form.Del(name)
		}
	}
	form.Set("decision", "allow")
	return form
}
