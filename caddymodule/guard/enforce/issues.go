package enforce

import (
	"cmp"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
)

// issue is an OperationOutcome.issue, as far as it is about what the client has sent: what is wrong, and where.
type issue struct {
	Severity    string   `json:"severity"`
	Code        string   `json:"code"`
	Diagnostics string   `json:"diagnostics,omitempty"`
	Details     *details `json:"details,omitempty"`
	Expression  []string `json:"expression,omitempty"`
}

type details struct {
	Text string `json:"text,omitempty"`
}

// ownFaults are the issue types of what is wrong with a request itself. The others are about what else there is.
var ownFaults = setOf("invalid", "structure", "required", "value", "invariant", "code-invalid", "extension", "not-supported", "too-long", "processing")

var (
	severities = setOf("fatal", "error", "warning", "information")
	expression = regexp.MustCompile(`^[A-Z][A-Za-z]*(\.[A-Za-z]+(\[[0-9]{1,9}\])?){0,20}$`)
)

// maxIssues is how many issues are passed on.
const maxIssues = 50

// issuesOf are the issues of the FHIR server's refusal of an invalid request, in words as far as the client may know
// them.
func issuesOf(a *answer, s said) []issue {
	var outcome struct {
		ResourceType string
		Issue        []issue
	}
	isAbout := a.status == http.StatusBadRequest || a.status == http.StatusUnprocessableEntity || a.succeeded()
	if !isAbout || !a.isJSON() || json.Unmarshal(a.body, &outcome) != nil || outcome.ResourceType != "OperationOutcome" {
		return nil
	}
	issues := outcome.Issue[:0]
	for _, i := range outcome.Issue {
		i.Expression = slices.DeleteFunc(i.Expression, func(e string) bool { return !expression.MatchString(e) })
		if i.Details != nil && i.Diagnostics == "" {
			i.Diagnostics = i.Details.Text
		}
		i.Diagnostics, i.Details = s.reason(i.Diagnostics), nil
		if severities[i.Severity] && ownFaults[i.Code] && len(issues) < maxIssues {
			issues = append(issues, i)
		}
	}
	return issues
}

// invalidated is the FHIR server's refusal of a body that is invalid; nil if it says nothing of that.
func invalidated(a *answer, s said) *answer {
	issues := issuesOf(a, s)
	for i := range issues {
		issues[i].Diagnostics = cmp.Or(issues[i].Diagnostics, refusesWrite)
	}
	text, err := json.Marshal(map[string]any{"resourceType": "OperationOutcome", "issue": issues})
	if len(issues) == 0 || err != nil {
		return nil
	}
	return newAnswer(a.status, text)
}

// explained is a text with the FHIR server's reasons behind it, if it gives any.
func explained(text string, a *answer, s said) string {
	for _, i := range issuesOf(a, s) {
		if i.Diagnostics != "" {
			text += " It says: " + i.Diagnostics
		}
	}
	return text
}

// refusesWrite is said of a write that the server refuses without a reason.
const refusesWrite = "The FHIR server refuses the write."
