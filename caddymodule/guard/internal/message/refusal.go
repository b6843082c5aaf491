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

// The causes of a refusal, for logs and tests.
var (
	// ErrScope: no scope allows the interaction.
	ErrScope = errors.New("no scope allows this")
	// ErrOracle: the request could tell more than its scopes allow.
	ErrOracle = errors.New("could tell more than the scopes allow")
	// ErrOutside: the resource is not one that the scopes are about, or is not there.
	ErrOutside = errors.New("not there, or not covered by the scopes")
	// ErrRule: a rule of the site denies it.
	ErrRule = errors.New("denied by a rule")
	// ErrCostly: the request would cost too much.
	ErrCostly = errors.New("too costly")
	// ErrBusy: other requests take the memory that it would need.
	ErrBusy = errors.New("too much is held")
)

// Forbidden refuses what no scope allows (RFC 6750 §3.1), or what could tell more than they do.
func Forbidden(cause error, format string, args ...any) *guard.Error {
	return guard.InsufficientScope(fmt.Sprintf(format, args...), cause)
}

// Denied refuses what a rule of the site denies. No other scope would help.
func Denied(d rule.Decision) *guard.Error {
	refusal := &guard.Error{
		Status: http.StatusForbidden, Description: fmt.Sprintf("The rule %s of this server does not allow this.", d.Rule),
		Err: fmt.Errorf("%w: %s", ErrRule, d.Rule),
	}
	if d.Err != nil {
		refusal.Err = fmt.Errorf("%w: %w", ErrRule, d.Err)
	}
	return refusal
}

// NotFound is the answer for what is not there, and for what is there and not covered: the same in all that shows.
func NotFound() *guard.Error {
	return &guard.Error{Status: http.StatusNotFound, Description: "There is no such resource, or the access token does not cover it.", Err: ErrOutside}
}

// IsOutside reports whether a refusal is that of a resource that is not there, or not covered.
func IsOutside(err error) bool { return errors.Is(err, ErrOutside) }

// Invalid refuses a request that is malformed, whatever the token.
func Invalid(err error, format string, args ...any) *guard.Error {
	return &guard.Error{Status: http.StatusBadRequest, Description: fmt.Sprintf(format, args...), Err: err}
}

// TooCostly refuses what would take too many requests, or too much memory.
func TooCostly(format string, args ...any) *guard.Error {
	return &guard.Error{Status: http.StatusForbidden, Description: fmt.Sprintf(format, args...), Err: ErrCostly}
}

// Failed passes on that the FHIR server failed. Its words are left out: they may be about any resource.
func Failed(a *Answer) *guard.Error {
	refusal := &guard.Error{Status: a.Status, Description: "The FHIR server could not answer.", Err: fmt.Errorf("the FHIR server answered %d", a.Status)}
	if seconds, err := strconv.Atoi(a.Header.Get("Retry-After")); err == nil {
		refusal.Wait = time.Duration(seconds) * time.Second
	}
	return refusal
}

// Refused says that no scope allows the interaction.
func Refused(rights *access.Rights, i interaction.Interaction) error {
	of := i.Type
	if of == "" || of == smart.AnyType {
		of = "all types"
	}
	refusal := Forbidden(ErrScope, "No scope allows %s of %s: it needs the permission %s.", i.Kind, of, i.Permission())
	if missing := rights.Missing; missing != "" {
		refusal = Forbidden(ErrScope, "%s", missing)
	} else if rights.OnlyWhole(i.Type, i.Permission()) {
		refusal = Forbidden(ErrScope, "Scopes that are bound to a patient do not allow %s of %s.", i.Kind, of)
	}
	return refusal.Lifted(Lacking(rights, i))
}

// maxNamed is how many types of _type a challenge names scopes for.
const maxNamed = 16

// Lacking are the scopes of which each allows an interaction, or a part of it if it searches several types.
func Lacking(rights *access.Rights, i interaction.Interaction) string {
	if of := typesOf(i); len(of) > 0 {
		var all []string
		for _, t := range of[:min(len(of), maxNamed)] {
			all = append(all, strings.Fields(rights.Lacking(t, i.Permission(), false))...)
		}
		return strings.Join(all, " ")
	}
	ofAll := i.Kind == interaction.TypeHistory || i.Kind == interaction.SystemHistory ||
		i.Type == "Patient" && i.Permission()&(smart.Create|smart.Delete) != 0
	return rights.Lacking(i.Type, i.Permission(), ofAll)
}

// typesOf are the types that a search of the system or of a compartment names, each once.
func typesOf(i interaction.Interaction) (types []string) {
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

// Beyond refuses what only scopes to read and search everything allow.
func Beyond(rights *access.Rights, cause error, format string, args ...any) *guard.Error {
	return Forbidden(cause, format, args...).Lifted(rights.Lacking(smart.AnyType, ReadSearch, true))
}

// ErrSearch says that a search is not one that FHIR has.
var ErrSearch = errors.New("invalid search")

// ErrBody says that a body is not what the request needs.
var ErrBody = errors.New("body cannot be judged")

// ReadSearch is what it takes to see all resources of a type.
const ReadSearch = smart.Read | smart.Search

// CheckNames refuses parameters that are not on a list.
func CheckNames(operation string, parameters []smart.Parameter, allowed []string) error {
	for _, p := range parameters {
		if !slices.Contains(allowed, p.Name) {
			return Forbidden(ErrOracle, "The parameter %s of %s is not allowed here.", strconv.Quote(p.Name), operation)
		}
	}
	return nil
}

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

// Said is what a client has sent, piece by piece: names and values. These a FHIR server may repeat to it.
type Said map[string]bool

// maxSaid is how many pieces are known. Who sends more could be trying out what a FHIR server's words are about.
const maxSaid = 2000

func (s Said) add(piece string) {
	if len(s) <= maxSaid {
		s[piece] = true
	}
}

// Parameters adds a search: the values as they are, and the parts of which a date, a number or a token is made.
func (s Said) Parameters(all []smart.Parameter) Said {
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

// Body adds the names and values of a JSON body, up to its first syntax error.
func (s Said) Body(text []byte) Said {
	_ = s.value(rawjson.NewCursor(text).AllowDuplicates()) // text after a syntax error is not repeated
	return s
}

func (s Said) value(c *rawjson.Cursor) error {
	switch c.Kind() {
	case rawjson.Object:
		return c.Object(func(name []byte) error {
			s.add(string(name))
			return s.value(c)
		})
	case rawjson.Array:
		return c.Array(func() error { return s.value(c) })
	case rawjson.String:
		said, err := c.Text()
		if err == nil {
			s.add(said)
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

// Said is what the client has sent in a call.
func (c Call) Said() Said {
	parameters, _ := smart.ParseParameters(c.Query) // what cannot be read is not repeated
	return Said{}.Parameters(parameters).Body(c.Body)
}

// reason is what a FHIR server says about what the client has sent, without what the client has not said and what is no
// word of FHIR's: names, numbers, ids and addresses of others. Empty if too little is left, or if the text is about what
// else there is.
func (s Said) reason(text string) string {
	if len(s) > maxSaid || len(text) > maxReason || aboutOthers.MatchString(text) {
		return ""
	}
	var told []string
	for _, sentence := range sentenceEnd.Split(text, -1) {
		if known := s.known(sentence); known != "" {
			told = append(told, known)
		}
	}
	return strings.Join(told, ". ")
}

// sentenceEnd is where a sentence ends and another one begins: a list of what a FHIR server supports follows the mistake.
var sentenceEnd = regexp.MustCompile(`\.\s+`)

// known is what a sentence says in known words. Empty if too little is left.
func (s Said) known(text string) string {
	var kept []string
	words, known := 0, 0
	for _, piece := range pieces.FindAllStringSubmatch(text, -1) {
		word, core := piece[0], piece[1]+piece[2]+piece[3]
		if words++; s.has(core) && (core != "" || !letters.MatchString(word)) {
			known++
		} else if word = omitted; len(kept) > 0 && kept[len(kept)-1] == omitted {
			continue
		}
		kept = append(kept, word)
	}
	if 3*known <= 2*words {
		return ""
	}
	return strings.Join(kept, " ")
}

const (
	maxReason = 1000 // bytes
	omitted   = "…"
)

// pieces are what is in quotation marks, and words, each with the signs around it.
var pieces = regexp.MustCompile(`[^\s"'\pL\pN_]*"([^"]*)"[^\s"'\pL\pN_]*|[^\s"'\pL\pN_]*'([^']*)'[^\s"'\pL\pN_]*|[^\s"'\pL\pN_]*([^\s"'()\[\]{},;=]*[^\s"'()\[\]{},;:.=!?])[^\s"'\pL\pN_]*|\S+`)

var letters = regexp.MustCompile(`[\pL\pN_]`)

// aboutOthers are the words by which a text tells which resources there are.
var aboutOthers = regexp.MustCompile(`(?i)\b(exist|already|duplicate|unique|delete|remov|another|other|belong|conflict|match|multiple|placeholder|` +
	`not found|could be found|no such|gone|partition|constraint fail|person|people)`)

// has reports whether a piece may be told: the client has said it, or it is a word of a language, of FHIR or of HAPI.
func (s Said) has(piece string) bool {
	return piece == "" || s[piece] || vocabulary[strings.ToLower(piece)] || interaction.IsType(piece) ||
		isElement(piece) || specification.MatchString(piece)
}

// specification are addresses of FHIR's own, and the numbers of HAPI's messages.
var specification = regexp.MustCompile(`^(http://hl7\.org/fhir/(StructureDefinition|ValueSet|CodeSystem)/[A-Za-z-]{1,64}(\|[0-9.]{1,8})?|HAPI-[0-9]{4})$`)

// isElement reports whether a piece is a path, such as Observation.status.
func isElement(piece string) bool {
	resourceType, _, _ := strings.Cut(piece, ".")
	return elementPath.MatchString(piece) && interaction.IsType(resourceType)
}

var elementPath = regexp.MustCompile(`^[A-Z][A-Za-z]*(\.[a-z][A-Za-z]*(\[[0-9]{1,3}\])?(\[x\])?){1,10}$`)

// vocabulary are the words that FHIR servers' messages about a request are made of. None is a name of a person's.
var vocabulary = SetOf(strings.Fields(`
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
