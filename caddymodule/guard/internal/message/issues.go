package message

import (
	"cmp"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
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
