package brands

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// maxProblems is the maximum number of problems reported for a Bundle.
const maxProblems = 20

// problems collects the errors of a Bundle with their paths.
type problems struct {
	list    []error
	omitted int
}

func (p *problems) add(path, format string, arguments ...any) {
	problem := fmt.Errorf("%s: %s", path, fmt.Sprintf(format, arguments...))
	switch {
	case slices.ContainsFunc(p.list, func(err error) bool { return err.Error() == problem.Error() }):
	case len(p.list) == maxProblems:
		p.omitted++
	default:
		p.list = append(p.list, problem)
	}
}

func (p *problems) err() error {
	if p.omitted > 0 {
		return errors.Join(append(p.list, fmt.Errorf("and %d more", p.omitted))...)
	}
	return errors.Join(p.list...)
}

// element is a part of a Bundle. If the element is missing, its value is nil.
type element struct {
	path     string
	value    any
	problems *problems
}

func (e element) exists() bool { return e.value != nil }

func (e element) addProblem(format string, arguments ...any) {
	e.problems.add(e.path, format, arguments...)
}

// member returns a member of an object.
func (e element) member(name string) element {
	member := element{e.path + "." + name, nil, e.problems}
	object, ok := e.value.(map[string]any)
	if e.exists() && !ok {
		e.addProblem("must be an object")
		return member
	}
	member.value = object[name]
	return member
}

// items returns the items of a repeatable member.
func (e element) items(name string) []element {
	list := e.member(name)
	values, ok := list.value.([]any)
	if list.exists() && !ok {
		list.addProblem("must be an array")
	}
	items := make([]element, len(values))
	for i, value := range values {
		items[i] = element{fmt.Sprintf("%s[%d]", list.path, i), value, e.problems}
	}
	return items
}

// text returns the element's string, or "" if the element is missing.
func (e element) text() string {
	text, ok := e.value.(string)
	if e.exists() && !ok {
		e.addProblem("must be a string")
	}
	return text
}

// requiredText returns the element's string. It reports a problem if the element is missing.
func (e element) requiredText() string {
	text := e.text()
	if !e.exists() {
		e.addProblem("is missing")
	}
	return text
}

// checkCode checks that the element is present and is one of the codes.
func (e element) checkCode(codes ...string) {
	if code := e.requiredText(); e.exists() && !slices.Contains(codes, code) {
		e.addProblem("%.50q is not allowed: use %s", code, strings.Join(codes, ", "))
	}
}

// checkStructure checks the general rules of FHIR JSON, and the codes in dataAbsentReason extensions.
func (e element) checkStructure() {
	switch value := e.value.(type) {
	case nil:
		e.addProblem("must not be null")
	case string:
		if strings.TrimSpace(value) == "" {
			e.addProblem("must not be empty")
		}
	case []any:
		e.checkArray(value)
	case map[string]any:
		e.checkObject(value)
	}
}

// checkArray checks an array. Its items may be null for primitives that have only extensions.
func (e element) checkArray(items []any) {
	if len(items) == 0 {
		e.addProblem("must not be empty")
	}
	for i, item := range items {
		if item != nil {
			element{fmt.Sprintf("%s[%d]", e.path, i), item, e.problems}.checkStructure()
		}
	}
}

func (e element) checkObject(members map[string]any) {
	if len(members) == 0 {
		e.addProblem("must not be empty")
	}
	if members["url"] == dataAbsentReason {
		e.member("valueCode").checkCode("asked-declined", "asked-unknown")
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		element{e.path + "." + name, members[name], e.problems}.checkStructure()
	}
}

// dataAbsentReason is the extension with the reason why a value is absent.
const dataAbsentReason = "http://hl7.org/fhir/StructureDefinition/data-absent-reason"

// isAbsent reports whether an object contains the reason why the primitive member name is absent.
func (e element) isAbsent(name string) bool {
	primitive := element{value: e.member("_" + name).value, problems: new(problems)}
	return slices.ContainsFunc(primitive.items("extension"), func(extension element) bool {
		return extension.member("url").text() == dataAbsentReason
	})
}

var (
	idPattern      = regexp.MustCompile(`^[A-Za-z0-9.-]{1,64}$`)
	versionPattern = regexp.MustCompile(`^[0-9]+\.[0-9]+(\.[0-9]+)?(-[a-z0-9]+)?$`)
)

// isWebURL reports whether text is a URL that browsers can open. schemes are the allowed URL schemes.
func isWebURL(text string, schemes ...string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Hostname() != "" && u.User == nil && slices.Contains(schemes, u.Scheme)
}

// checkURL checks that the element is present and is a URL with one of the schemes.
func (e element) checkURL(schemes ...string) {
	if text := e.requiredText(); e.exists() && !isWebURL(text, schemes...) {
		e.addProblem("%.100q must be a URL with the scheme %s and a host", text, strings.Join(schemes, ": or ")+":")
	}
}

// isLogoURL reports whether text is the URL of a logo or a data URL with its content.
func isLogoURL(text string) bool {
	return strings.HasPrefix(text, "data:image/") || isWebURL(text, "https")
}

func (e element) checkLogo() {
	if text := e.requiredText(); e.exists() && !isLogoURL(text) {
		e.addProblem("%.100q must be an https: URL or a data: URL of an image", text)
	}
}

// requiredInstant returns the element's time (FHIR R4, instant). It reports a problem if the element is missing or invalid.
func (e element) requiredInstant() time.Time {
	text := e.requiredText()
	at, err := time.Parse(time.RFC3339, text)
	if e.exists() && err != nil {
		e.addProblem("%.50q is not an instant such as 2026-01-31T09:00:00Z", text)
	}
	return at
}

func (e element) requiredID() string {
	id := e.requiredText()
	if e.exists() && !idPattern.MatchString(id) {
		e.addProblem("%.70q is not a valid id: use up to 64 letters, digits, hyphens and dots", id)
	}
	return id
}
