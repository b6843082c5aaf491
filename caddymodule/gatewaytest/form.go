package gatewaytest

import (
	"html"
	"net/url"
	"regexp"
)

// Form is the form of a page, with the values that it comes with.
type Form struct {
	// Action is where the form is sent to. Empty: the page has no form.
	Action string

	// Fields are what is sent, checkboxes as if they were checked.
	Fields url.Values
}

var (
	formTag  = regexp.MustCompile(`<form method="post" action="([^"]*)">`)
	inputTag = regexp.MustCompile(`<input [^>]*?name="([^"]*)"(?: value="([^"]*)")?`)
)

// ReadForm reads the form of a page, as a browser does.
func ReadForm(page string) Form {
	form := Form{Fields: url.Values{}}
	if tag := formTag.FindStringSubmatch(page); tag != nil {
		form.Action = html.UnescapeString(tag[1])
	}
	for _, input := range inputTag.FindAllStringSubmatch(page, -1) {
		form.Fields.Set(html.UnescapeString(input[1]), html.UnescapeString(input[2]))
	}
	return form
}
