package page

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/text/feature/plural"
	"golang.org/x/text/language"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// translation contains a language and its texts. The keys are the English texts; for plurals, the English plural form.
type translation struct {
	tag   language.Tag
	texts map[string]pluralForms
}

// pluralForms contains the forms of a text: only one, or singular and plural.
type pluralForms []string

// UnmarshalJSON decodes a string or a list of strings.
func (f *pluralForms) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte("[")) {
		return json.Unmarshal(data, (*[]string)(f))
	}
	*f = pluralForms{""}
	return json.Unmarshal(data, &(*f)[0])
}

// readTranslations returns all languages except English, sorted by tag.
func readTranslations() (all []*translation) {
	texts := readTexts(files)
	for _, tag := range slices.Sorted(maps.Keys(texts)) {
		all = append(all, &translation{tag: language.Make(tag), texts: texts[tag]})
	}
	return all
}

// readTexts reads texts.json, which maps each English text to its translations by language. It returns the texts by language.
// It panics if the embedded file is invalid, which tests rule out.
func readTexts(source fs.FS) map[string]map[string]pluralForms {
	content, err := fs.ReadFile(source, "texts.json")
	if err != nil {
		panic(err)
	}
	var translated map[string]map[string]pluralForms
	if err := json.Unmarshal(content, &translated); err != nil {
		panic(err)
	}
	byTag := map[string]map[string]pluralForms{}
	for english, each := range translated {
		for tag, text := range each {
			if byTag[tag] == nil {
				byTag[tag] = map[string]pluralForms{}
			}
			byTag[tag][english] = text
		}
	}
	return byTag
}

// translate returns the translated text: HTML if an argument is HTML, otherwise a string.
func (l *translation) translate(x *Text) any {
	format, args, markup := l.format(x), make([]any, len(x.args)), false
	for i, arg := range x.args {
		args[i] = l.translateArgument(arg)
		_, isMarkup := args[i].(template.HTML)
		markup = markup || isMarkup
	}
	if len(args) == 0 { // format may contain percent signs, e.g. in the text of an error; it is not passed to Sprintf
		return format
	}
	if !markup {
		return fmt.Sprintf(format, args...)
	}
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = template.HTMLEscapeString(text)
		}
	}
	return template.HTML(fmt.Sprintf(template.HTMLEscapeString(format), args...))
}

// format returns the format string of a text in the language. If there is no translation, it returns the English one.
func (l *translation) format(x *Text) string {
	translated, form := []string{x.format, x.plural}, 0
	if x.plural != "" && !l.isSingular(x.number) {
		form = 1
	}
	if translated := l.texts[cmp.Or(x.plural, x.format)]; form < len(translated) {
		return translated[form]
	}
	return translated[form]
}

func (l *translation) isSingular(number int) bool {
	return plural.Cardinal.MatchPlural(l.tag, number, 0, 0, 0, 0) == plural.One
}

func (l *translation) translateArgument(arg any) any {
	switch arg := arg.(type) {
	case *Text:
		return l.translate(arg)
	case time.Duration:
		return l.translate(describeWait(arg))
	}
	return arg
}

// describeWait describes how long to wait, rounded up so that retrying after it is not too early.
func describeWait(d time.Duration) *Text {
	seconds := int(math.Ceil(d.Seconds()))
	switch minutes := (seconds + 59) / 60; {
	case seconds == 1:
		return T("a second")
	case seconds < 60:
		return T("%d seconds", seconds)
	case minutes == 1:
		return T("a minute")
	default:
		return T("%d minutes", minutes)
	}
}

// date formats a FHIR date or dateTime for the language. The month is a word, because 01/05/1970 has different meanings in
// different regions. Other texts, such as a year, are returned unchanged.
func (l *translation) date(text string) string {
	for layout, shown := range map[string]*Text{"2006-01": T("Jan 2006"), time.DateOnly: T("Jan 2, 2006"), time.RFC3339: T("Jan 2, 2006, 3:04 PM")} {
		if at, err := time.Parse(layout, text); err == nil {
			months := strings.Fields(l.format(T("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec")))
			return strings.Replace(at.Format(l.format(shown)), at.Format("Jan"), months[at.Month()-1], 1)
		}
	}
	return text
}

// maxLocales is the maximum length of ui_locales and Accept-Language in bytes.
const maxLocales = 500

// Languages of the pages. The first one is the default.
var (
	english   = &translation{tag: language.English}
	languages = append([]*translation{english}, readTranslations()...)
	matcher   = newMatcher()
)

// Languages returns the languages of the pages for ui_locales_supported (OpenID Connect Discovery §3).
func Languages() (tags []string) {
	for _, l := range languages {
		tags = append(tags, l.tag.String())
	}
	return tags
}

func newMatcher() language.Matcher {
	var tags []language.Tag
	for _, l := range languages {
		tags = append(tags, l.tag)
	}
	return language.NewMatcher(tags)
}

// languageOf selects a language by ui_locales (OpenID Connect Core §3.1.2.1) or, by default, Accept-Language. If locales is
// empty, it uses ui_locales in the query, because rejected requests may not have been parsed.
func languageOf(r *http.Request, locales string) *translation {
	locales = cmp.Or(locales, r.URL.Query().Get("ui_locales"))
	for _, wanted := range [][]language.Tag{parseLocales(locales), acceptedLanguages(r)} {
		if _, i, confidence := matcher.Match(wanted...); len(wanted) > 0 && confidence > language.No {
			return languages[i]
		}
	}
	return english
}

// parseLocales parses language tags in order of preference, separated by spaces. Invalid tags are ignored.
func parseLocales(locales string) (tags []language.Tag) {
	if len(locales) > maxLocales {
		return nil
	}
	for locale := range strings.FieldsSeq(locales) {
		if tag, err := language.Parse(locale); err == nil {
			tags = append(tags, tag)
		}
	}
	return tags
}

func acceptedLanguages(r *http.Request) []language.Tag {
	header := strings.Join(r.Header.Values("Accept-Language"), ",")
	if len(header) > maxLocales {
		return nil
	}
	tags, _, err := language.ParseAcceptLanguage(header)
	if err != nil {
		return nil
	}
	return tags
}

// String returns the English text.
func (x *Text) String() string { return fmt.Sprint(english.translate(x)) }

// Text is an English text that is translated into the user's language on pages. A nil Text is empty.
type Text struct {
	format, plural string
	args           []any
	number         int // number that selects the plural form
}

// T returns a text. The arguments are those of [fmt.Sprintf]. They may also be texts.
func T(format string, args ...any) *Text { return &Text{format: format, args: args} }

// Plural returns a text for a number, which is the only argument of both forms.
func Plural(one, other string, number int) *Text {
	return &Text{format: one, plural: other, number: number, args: []any{number}}
}

// JoinWithAnd joins texts into a list, e.g. "read, search and create". It returns nil if there are none.
func JoinWithAnd(items ...*Text) *Text {
	if len(items) == 0 {
		return nil
	}
	last := len(items) - 1
	if last == 0 {
		return items[0]
	}
	list := items[0]
	for _, item := range items[1:last] {
		list = T("%s, %s", list, item)
	}
	return T("%s and %s", list, items[last])
}

// ErrorText returns the text of an error that the user can correct ([oauth2.NewRestartError]).
func ErrorText(e *oauth2.Error) *Text { return &Text{format: e.Description} }
