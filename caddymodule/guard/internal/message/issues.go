package message

import (
	"cmp"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
)

// Issue is an OperationOutcome.issue, as far as it is about what the client has sent: what is wrong, and where.
type Issue struct {
	Severity    string   `json:"severity"`              // fatal, error, warning or information
	Code        string   `json:"code"`                  // a code of IssueType
	Diagnostics string   `json:"diagnostics,omitempty"` // text for people
	Details     *details `json:"details,omitempty"`     // text of the server about the code
	Expression  []string `json:"expression,omitempty"`  // FHIRPath of the elements
}

type details struct {
	Text string `json:"text,omitempty"`
}

// ownFaults are the issue types of what is wrong with a request itself. The others are about what else there is.
var ownFaults = SetOf("invalid", "structure", "required", "value", "invariant", "code-invalid", "extension", "not-supported", "too-long", "processing")

var (
	severities = SetOf("fatal", "error", "warning", "information")
	expression = regexp.MustCompile(`^[A-Z][A-Za-z]*(\.[A-Za-z]+(\[[0-9]{1,9}\])?){0,20}$`)
)

// maxIssues is how many issues are passed on.
const maxIssues = 50

// IssuesOf are the issues of the FHIR server's refusal of an invalid request, in words as far as the client may know
// them.
func IssuesOf(a *Answer, s Said) []Issue {
	var outcome struct {
		ResourceType string
		Issue        []Issue
	}
	isAbout := a.Status == http.StatusBadRequest || a.Status == http.StatusUnprocessableEntity || a.Succeeded()
	if !isAbout || !a.IsJSON() || json.Unmarshal(a.Body, &outcome) != nil || outcome.ResourceType != "OperationOutcome" {
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

// Invalidated is the FHIR server's refusal of a body that is invalid; nil if it says nothing of that.
func Invalidated(a *Answer, s Said) *Answer {
	issues := IssuesOf(a, s)
	for i := range issues {
		issues[i].Diagnostics = cmp.Or(issues[i].Diagnostics, RefusesWrite)
	}
	text, err := json.Marshal(map[string]any{"resourceType": "OperationOutcome", "issue": issues})
	if len(issues) == 0 || err != nil {
		return nil
	}
	return NewAnswer(a.Status, text)
}

// Explained is a text with the FHIR server's reasons behind it, if it gives any.
func Explained(text string, a *Answer, s Said) string {
	for _, i := range IssuesOf(a, s) {
		if i.Diagnostics != "" {
			text += " It says: " + i.Diagnostics
		}
	}
	return text
}

// RefusesWrite is said of a write that the server refuses without a reason.
const RefusesWrite = "The FHIR server refuses the write."
