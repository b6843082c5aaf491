package enforce

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
)

// issue is an OperationOutcome.issue, as far as it is about the client's own body: what is wrong, and where. Words are
// left out, because they may be about any resource.
type issue struct {
	Severity   string   `json:"severity"`
	Code       string   `json:"code"`
	Expression []string `json:"expression,omitempty"`
}

var (
	issueCode  = regexp.MustCompile(`^[a-z-]{1,40}$`)
	expression = regexp.MustCompile(`^[A-Z][A-Za-z]*(\.[A-Za-z]+(\[[0-9]{1,9}\])?){0,20}$`)
)

// maxIssues is how many issues are passed on.
const maxIssues = 50

// invalidated is the FHIR server's refusal of a body that is invalid; nil if it says nothing of that.
func invalidated(a *answer) *answer {
	var outcome struct {
		ResourceType string
		Issue        []issue
	}
	isAbout := a.status == http.StatusBadRequest || a.status == http.StatusUnprocessableEntity
	if !isAbout || !a.isJSON() || json.Unmarshal(a.body, &outcome) != nil || outcome.ResourceType != "OperationOutcome" {
		return nil
	}
	said := outcome.Issue[:0]
	for _, i := range outcome.Issue {
		i.Expression = slices.DeleteFunc(i.Expression, func(e string) bool { return !expression.MatchString(e) })
		if issueCode.MatchString(i.Severity) && issueCode.MatchString(i.Code) && len(said) < maxIssues {
			said = append(said, i)
		}
	}
	if len(said) == 0 {
		return nil
	}
	text, err := json.Marshal(map[string]any{"resourceType": "OperationOutcome", "issue": said})
	if err != nil {
		return nil
	}
	return newAnswer(a.status, text)
}
