package message

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// Causes of a rejection, for logs and tests.
var (
	ErrInsufficientScope = errors.New("no scope allows the request")
	// ErrDisclosure: the response could reveal more than the scopes allow.
	ErrDisclosure = errors.New("response could reveal more than the scopes allow")
	// ErrNotCovered: the scopes do not cover the resource, or it does not exist.
	ErrNotCovered = errors.New("resource not found or not covered by the scopes")
	// ErrDeniedByPolicy: a policy denies the request or resource.
	ErrDeniedByPolicy = errors.New("denied by an access policy")
	ErrTooCostly      = errors.New("request is too costly")
	// ErrBusy: other requests use the memory that the request needs.
	ErrBusy = errors.New("memory limit reached")
)

// Forbidden returns the error for a request that no scope allows (RFC 6750 §3.1) or that could reveal too much.
func Forbidden(cause error, format string, args ...any) *guard.Error {
	return guard.InsufficientScope(fmt.Sprintf(format, args...), cause)
}

// DeniedByPolicy returns the error for a request that a policy denies. It contains no scopes, because none would help.
func DeniedByPolicy(d rule.Decision) *guard.Error {
	rejection := &guard.Error{
		Status: http.StatusForbidden, Description: fmt.Sprintf("Denied by the access rule %s of this server.", d.Rule),
		Err: fmt.Errorf("%w: %s", ErrDeniedByPolicy, d.Rule),
	}
	if d.Err != nil {
		rejection.Err = fmt.Errorf("%w: %w", ErrDeniedByPolicy, d.Err)
	}
	return rejection
}

// NotFound returns the error for a resource that does not exist or is not covered. It is the same in both cases.
func NotFound() *guard.Error {
	return &guard.Error{Status: http.StatusNotFound, Description: "The resource does not exist, or the access token does not cover it.", Err: ErrNotCovered}
}

// IsNotCovered reports whether a rejection means that a resource is missing or not covered.
func IsNotCovered(err error) bool { return errors.Is(err, ErrNotCovered) }

// InvalidRequest returns the error for a request that is malformed whatever its token.
func InvalidRequest(err error, format string, args ...any) *guard.Error {
	return &guard.Error{Status: http.StatusBadRequest, Description: fmt.Sprintf(format, args...), Err: err}
}

// TooCostly returns the error for a request that would require too many requests to the FHIR server or too much memory.
func TooCostly(format string, args ...any) *guard.Error {
	return &guard.Error{Status: http.StatusForbidden, Description: fmt.Sprintf(format, args...), Err: ErrTooCostly}
}

// ServerFailure returns the error for a failure of the FHIR server, without its message, which may concern any resource.
func ServerFailure(a *Response) *guard.Error {
	rejection := &guard.Error{Status: a.Status, Description: "The FHIR server failed to process the request.", Err: fmt.Errorf("FHIR server responded with status %d", a.Status)}
	if seconds, err := strconv.Atoi(a.Header.Get("Retry-After")); err == nil {
		rejection.Wait = time.Duration(seconds) * time.Second
	}
	return rejection
}

// InsufficientScope returns the error for an interaction that no scope allows.
func InsufficientScope(rights *access.Rights, i interaction.Interaction) error {
	of := i.Type
	if of == "" || of == smart.AnyType {
		of = "all types"
	}
	rejection := Forbidden(ErrInsufficientScope, "No scope allows %s of %s: the permission %s is required.", i.Kind, of, i.Permission())
	if missing := rights.UnusableScopeReason; missing != "" {
		rejection = Forbidden(ErrInsufficientScope, "%s", missing)
	} else if rights.RequiresUnrestricted(i.Type, i.Permission()) {
		rejection = Forbidden(ErrInsufficientScope, "Scopes that are bound to a patient do not allow %s of %s.", i.Kind, of)
	}
	return rejection.WithScope(MissingScopes(rights, i))
}

// maxChallengeTypes is the maximum number of types in _type for which a challenge contains scopes.
const maxChallengeTypes = 16

// MissingScopes returns the scopes, each of which would allow an interaction or part of a search of several types.
func MissingScopes(rights *access.Rights, i interaction.Interaction) string {
	if of := searchedTypes(i); len(of) > 0 {
		var all []string
		for _, t := range of[:min(len(of), maxChallengeTypes)] {
			all = append(all, strings.Fields(rights.MissingScopes(t, i.Permission(), false))...)
		}
		return strings.Join(all, " ")
	}
	needsUnrestricted := i.Kind == interaction.TypeHistory || i.Kind == interaction.SystemHistory ||
		i.Type == "Patient" && i.Permission()&(smart.Create|smart.Delete) != 0
	return rights.MissingScopes(i.Type, i.Permission(), needsUnrestricted)
}

// searchedTypes returns the types in _type of a search of the system or of a compartment, without duplicates.
func searchedTypes(i interaction.Interaction) (types []string) {
	if i.Kind != interaction.SystemSearch && (i.Kind != interaction.CompartmentSearch || i.Type != "" && i.Type != smart.AnyType) {
		return nil
	}
	for _, p := range i.Parameters {
		if p.Name != "_type" {
			continue
		}
		for name := range strings.SplitSeq(p.Value, ",") {
			if interaction.IsType(name) && !slices.Contains(types, name) {
				types = append(types, name)
			}
		}
	}
	return types
}

// UnrestrictedScopeRequired returns the error for a request that requires scopes to read and search everything.
func UnrestrictedScopeRequired(rights *access.Rights, cause error, format string, args ...any) *guard.Error {
	return Forbidden(cause, format, args...).WithScope(rights.MissingScopes(smart.AnyType, ReadSearch, true))
}

// ErrInvalidSearch means that a search is not a valid FHIR search.
var ErrInvalidSearch = errors.New("invalid search")

// ErrInvalidBody means that the body does not match the request.
var ErrInvalidBody = errors.New("request body cannot be checked")

// ReadSearch are the permissions that are required to access all resources of a type.
const ReadSearch = smart.Read | smart.Search

// CheckParameterNames returns an error if a parameter is not in the list of allowed names.
func CheckParameterNames(operation string, parameters []smart.Parameter, allowed []string) error {
	for _, p := range parameters {
		if !slices.Contains(allowed, p.Name) {
			return Forbidden(ErrDisclosure, "The parameter %s of %s is not allowed here.", strconv.Quote(p.Name), operation)
		}
	}
	return nil
}

// Issue is an OperationOutcome.issue that concerns the client's input.
type Issue struct {
	Severity    string        `json:"severity"`              // fatal, error, warning or information
	Code        string        `json:"code"`                  // code of the value set IssueType
	Diagnostics string        `json:"diagnostics,omitempty"` // text for humans
	Details     *issueDetails `json:"details,omitempty"`     // text for Code
	Expression  []string      `json:"expression,omitempty"`  // FHIRPath expressions of the affected elements
}

type issueDetails struct {
	Text string `json:"text,omitempty"`
}

// requestIssueTypes are the issue types that concern the request itself. Other types concern stored resources.
var requestIssueTypes = NewSet("invalid", "structure", "required", "value", "invariant", "code-invalid", "extension", "not-supported", "too-long", "processing")

var (
	severityCodes     = NewSet("fatal", "error", "warning", "information")
	expressionPattern = regexp.MustCompile(`^[A-Z][A-Za-z]*(\.[A-Za-z]+(\[[0-9]{1,9}\])?){0,20}$`)
)

// maxIssues is the maximum number of issues in a response.
const maxIssues = 50

// ClientIssues returns the issues in the FHIR server's rejection of an invalid request, reduced to information that the client
// may get.
func ClientIssues(a *Response, s SentTerms) []Issue {
	var outcome struct {
		ResourceType string
		Issue        []Issue
	}
	concernsRequest := a.Status == http.StatusBadRequest || a.Status == http.StatusUnprocessableEntity || a.IsSuccess()
	if !concernsRequest || !a.IsJSON() || json.Unmarshal(a.Body, &outcome) != nil || outcome.ResourceType != "OperationOutcome" {
		return nil
	}
	issues := outcome.Issue[:0]
	for _, i := range outcome.Issue {
		i.Expression = slices.DeleteFunc(i.Expression, func(e string) bool { return !expressionPattern.MatchString(e) })
		if i.Details != nil && i.Diagnostics == "" {
			i.Diagnostics = i.Details.Text
		}
		i.Diagnostics, i.Details = s.filterReason(i.Diagnostics), nil
		if severityCodes[i.Severity] && requestIssueTypes[i.Code] && len(issues) < maxIssues {
			issues = append(issues, i)
		}
	}
	return issues
}

// InvalidBodyResponse returns the FHIR server's rejection of an invalid body, or nil if it contains no issue for the client.
func InvalidBodyResponse(a *Response, s SentTerms) *Response {
	issues := ClientIssues(a, s)
	for i := range issues {
		issues[i].Diagnostics = cmp.Or(issues[i].Diagnostics, WriteRejected)
	}
	text, err := json.Marshal(map[string]any{"resourceType": "OperationOutcome", "issue": issues})
	if len(issues) == 0 || err != nil {
		return nil
	}
	return NewResponse(a.Status, text)
}

// ExplainRejection returns text, followed by the FHIR server's reasons if there are any.
func ExplainRejection(text string, a *Response, s SentTerms) string {
	for _, i := range ClientIssues(a, s) {
		if i.Diagnostics != "" {
			text += " Reason: " + i.Diagnostics
		}
	}
	return text
}

// WriteRejected is the description of a rejected write if no reason is known.
const WriteRejected = "The FHIR server rejected the write."

// SentTerms contains the names and values that a client has sent. Messages from the FHIR server may repeat them.
type SentTerms map[string]bool

// maxSentTerms limits the names and values. With more, a client could use the FHIR server's messages as an oracle.
const maxSentTerms = 2000

func (s SentTerms) add(piece string) {
	if len(s) <= maxSentTerms {
		s[piece] = true
	}
}

// AddParameters adds the values of search parameters, and the parts of dates, numbers and tokens.
func (s SentTerms) AddParameters(all []smart.Parameter) SentTerms {
	for _, p := range all {
		s.add(p.Name)
		for part := range strings.FieldsFuncSeq(p.Name, func(r rune) bool { return r == ':' || r == '.' }) {
			s.add(part)
		}
		s.add(p.Value)
		for part := range strings.FieldsFuncSeq(p.Value, func(r rune) bool { return r == ',' || r == '|' }) {
			s.add(part)
			if len(part) > 2 {
				s.add(part[2:])
			}
		}
	}
	return s
}

// AddBody adds the names and values of a JSON body, up to its first syntax error.
func (s SentTerms) AddBody(text []byte) SentTerms {
	_ = s.addValue(rawjson.NewCursor(text).AllowDuplicates()) // text after a syntax error is ignored
	return s
}

func (s SentTerms) addValue(c *rawjson.Cursor) error {
	switch c.Kind() {
	case rawjson.Object:
		return c.Object(func(name []byte) error {
			s.add(string(name))
			return s.addValue(c)
		})
	case rawjson.Array:
		return c.Array(func() error { return s.addValue(c) })
	case rawjson.String:
		value, err := c.Text()
		if err == nil {
			s.add(value)
		}
		return err
	case rawjson.Number:
		number, err := c.Raw()
		if err == nil {
			s.add(string(number))
		}
		return err
	}
	return c.Skip()
}

// SentTerms returns the names and values in a call.
func (c Call) SentTerms() SentTerms {
	parameters, _ := smart.ParseParameters(c.Query) // malformed parameters are ignored
	return SentTerms{}.AddParameters(parameters).AddBody(c.Body)
}

// filterReason reduces a FHIR server's message about the client's input to the input and known words: it omits names, numbers,
// ids and addresses from other resources. It returns "" if too little is left or the message concerns other resources.
func (s SentTerms) filterReason(text string) string {
	if len(s) > maxSentTerms || len(text) > maxReason || otherResourcePattern.MatchString(text) {
		return ""
	}
	var sentences []string
	for _, sentence := range sentenceEnd.Split(text, -1) {
		if filtered := s.knownWords(sentence); filtered != "" {
			sentences = append(sentences, filtered)
		}
	}
	return strings.Join(sentences, ". ")
}

// sentenceEnd separates sentences. The sentence about the mistake is often followed by a list of supported values.
var sentenceEnd = regexp.MustCompile(`\.\s+`)

// knownWords returns the known words of a sentence, or "" if too little is left.
func (s SentTerms) knownWords(text string) string {
	var output []string
	words, knownWords := 0, 0
	for _, piece := range piecePattern.FindAllStringSubmatch(text, -1) {
		word, trimmed := piece[0], piece[1]+piece[2]+piece[3]
		if words++; s.mayRepeat(trimmed) && (trimmed != "" || !lettersPattern.MatchString(word)) {
			knownWords++
		} else if word = omissionMark; len(output) > 0 && output[len(output)-1] == omissionMark {
			continue
		}
		output = append(output, word)
	}
	if 3*knownWords <= 2*words {
		return ""
	}
	return strings.Join(output, " ")
}

const (
	maxReason    = 1000 // maximum length in bytes
	omissionMark = "…"
)

// piecePattern matches quoted text, and words with adjacent punctuation.
var piecePattern = regexp.MustCompile(`[^\s"'\pL\pN_]*"([^"]*)"[^\s"'\pL\pN_]*|[^\s"'\pL\pN_]*'([^']*)'[^\s"'\pL\pN_]*|[^\s"'\pL\pN_]*([^\s"'()\[\]{},;=]*[^\s"'()\[\]{},;:.=!?])[^\s"'\pL\pN_]*|\S+`)

var lettersPattern = regexp.MustCompile(`[\pL\pN_]`)

// otherResourcePattern matches words that indicate a message about other resources.
var otherResourcePattern = regexp.MustCompile(`(?i)\b(exist|already|duplicate|unique|delete|remov|another|other|belong|conflict|match|multiple|placeholder|` +
	`not found|could be found|no such|gone|partition|constraint fail|person|people)`)

// mayRepeat reports whether a piece may be repeated: the client sent it, or it is a known word of English, FHIR or HAPI.
func (s SentTerms) mayRepeat(piece string) bool {
	return piece == "" || s[piece] || knownVocabulary[strings.ToLower(piece)] || interaction.IsType(piece) ||
		isElementPath(piece) || specificationPattern.MatchString(piece)
}

// specificationPattern matches addresses of the FHIR specification and the numbers of HAPI's messages.
var specificationPattern = regexp.MustCompile(`^(http://hl7\.org/fhir/(StructureDefinition|ValueSet|CodeSystem)/[A-Za-z-]{1,64}(\|[0-9.]{1,8})?|HAPI-[0-9]{4})$`)

// isElementPath reports whether a piece is an element path such as Observation.status.
func isElementPath(piece string) bool {
	resourceType, _, _ := strings.Cut(piece, ".")
	return elementPathPattern.MatchString(piece) && interaction.IsType(resourceType)
}

var elementPathPattern = regexp.MustCompile(`^[A-Z][A-Za-z]*(\.[a-z][A-Za-z]*(\[[0-9]{1,3}\])?(\[x\])?){1,10}$`)

// knownVocabulary contains the usual words of FHIR servers' messages about a request. It contains no names of persons.
var knownVocabulary = NewSet(strings.Fields(`
	a an and are as at be been but by can cannot could did do does for from had has have how in into is it its more must
	no not of on once only or should supported than that the their there this to too use used uses using was were when
	where which while will with without you your either neither least most both per any all each every

	0 1 absent accept accepted active allowed appears argument array arrays attribute attributes bad base binding body boolean bundle
	canonical cardinality case chain chained chains character characters check choice code codeableconcept codes coding
	codesystem combination comparator complete component composite contain contained contains content context correct data
	date dates datetime dateTime decimal declared define defined definition detected digit digits display document does
	domain due duration element elements empty encoding entry error errors expected expecting expression extension extensions extra
	fail failed fails fhir field fields first format found fragment greater handle header http https id identifier ids ignored
	illegal inappropriate include includes incomplete incorrect index instance instant int integer invalid invariant issue iteration
	json key known last length less limit line link list literal long longer malformed max maximum meta method min minimum
	missing modifier modifiers month name names namespace narrative needs none null number numbers numeric object offset
	operation operator order outcome parameter parameters parse parsed parser parsing part path pattern period permitted
	prefix primitive process processing profile profiles property provided qualifier quantity query range ratio read reason
	received recognised recognized reference references regex repeat repeated request required requires resource resourcetype
	resources result root rule rules schema scope search sent separator server severity short should size slice sort
	specification specified start status string strings structure sub-element subject subsetted suffix summary supplied support
	syntax system systems target text time timestamp timezone token tokens top total type types unable unexpected unit unknown
	unparseable unparsable unquoted unrecognised unrecognized unsupported uri uris url urls utf-8 valid validate validation value values
	valueset version warning whitespace wrong xhtml xml year zone date/time elements/attributes parameter(s) value(s)
`)...)
