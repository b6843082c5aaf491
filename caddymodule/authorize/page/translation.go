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

// translation is a language and its texts, by their English, plurals by that of the other
// form.
type translation struct {
	tag   language.Tag
	texts map[string]forms
}

// forms are a text's: one form, or for plurals those for one and for others.
type forms []string

// UnmarshalJSON reads a string or a list.
func (f *forms) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte("[")) {
		return json.Unmarshal(data, (*[]string)(f))
	}
	*f = forms{""}
	return json.Unmarshal(data, &(*f)[0])
}

// readTranslations returns the languages other than English, sorted.
func readTranslations() (all []*translation) {
	texts := readTexts(files)
	for _, tag := range slices.Sorted(maps.Keys(texts)) {
		all = append(all, &translation{tag: language.Make(tag), texts: texts[tag]})
	}
	return all
}

// readTexts reads texts.json, which has under each English text its translations by language. It returns them by language
// first. It panics only if the embedded file is wrong, which no tested binary has.
func readTexts(source fs.FS) map[string]map[string]forms {
	content, err := fs.ReadFile(source, "texts.json")
	if err != nil {
		panic(err)
	}
	var translated map[string]map[string]forms
	if err := json.Unmarshal(content, &translated); err != nil {
		panic(err)
	}
	byTag := map[string]map[string]forms{}
	for english, each := range translated {
		for tag, text := range each {
			if byTag[tag] == nil {
				byTag[tag] = map[string]forms{}
			}
			byTag[tag][english] = text
		}
	}
	return byTag
}

// translate returns a string, or HTML if an argument is.
func (l *translation) translate(x *Text) any {
	format, args, markup := l.format(x), make([]any, len(x.args)), false
	for i, arg := range x.args {
		args[i] = l.argument(arg)
		_, isMarkup := args[i].(template.HTML)
		markup = markup || isMarkup
	}
	if len(args) == 0 { // of an error, for example: it may contain percent signs
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

// format returns a text's format in the language. Without one it is the English, which is
// better than none.
func (l *translation) format(x *Text) string {
	forms, form := []string{x.format, x.plural}, 0
	if x.plural != "" && !l.isOne(x.number) {
		form = 1
	}
	if translated := l.texts[cmp.Or(x.plural, x.format)]; form < len(translated) {
		return translated[form]
	}
	return forms[form]
}

func (l *translation) isOne(number int) bool {
	return plural.Cardinal.MatchPlural(l.tag, number, 0, 0, 0, 0) == plural.One
}

func (l *translation) argument(arg any) any {
	switch arg := arg.(type) {
	case *Text:
		return l.translate(arg)
	case time.Duration:
		return l.translate(wait(arg))
	}
	return arg
}

// wait says how long to wait. It rounds up, so that nobody tries again too early.
func wait(d time.Duration) *Text {
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

// date writes a date or time of FHIR as the language does. A year, or a year and a month, stay
// as they are.
func (l *translation) date(text string) string {
	for layout, shown := range map[string]*Text{time.DateOnly: T("2006-01-02"), time.RFC3339: T("2006-01-02 15:04")} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.Format(fmt.Sprint(l.translate(shown)))
		}
	}
	return text
}

// maxLocales bounds what is read of ui_locales and Accept-Language.
const maxLocales = 500

// languages are those of the pages, the first for people who want none of them.
var (
	english   = &translation{tag: language.English}
	languages = append([]*translation{english}, readTranslations()...)
	matcher   = newMatcher()
)

// Languages returns the pages' languages, for ui_locales_supported (OpenID Connect
// Discovery §3).
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

// languageOf chooses a language by ui_locales (OpenID Connect Core §3.1.2.1), or else by
// Accept-Language. A request that was refused may have its locales in its query only.
func languageOf(r *http.Request, locales string) *translation {
	locales = cmp.Or(locales, r.URL.Query().Get("ui_locales"))
	for _, wanted := range [][]language.Tag{parseLocales(locales), acceptedLanguages(r)} {
		if _, i, confidence := matcher.Match(wanted...); len(wanted) > 0 && confidence > language.No {
			return languages[i]
		}
	}
	return english
}

// parseLocales reads tags in order of preference, with spaces between them. What is no tag is
// passed over.
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

// String returns the text in English.
func (x *Text) String() string { return fmt.Sprint(english.translate(x)) }

// Text is a text in English, which pages show in the person's language. A nil Text is none.
type Text struct {
	format, plural string
	args           []any
	number         int // if there is a plural
}

// T returns a text. Its arguments are those of [fmt.Sprintf], and may be texts too.
func T(format string, args ...any) *Text { return &Text{format: format, args: args} }

// Plural returns the text for a number, which is the only argument of both forms.
func Plural(one, other string, number int) *Text {
	return &Text{format: one, plural: other, number: number, args: []any{number}}
}

// And lists texts, such as "read, search and create". It returns nil for none.
func And(items ...*Text) *Text {
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

// Problem returns what an error tells the person ([oauth2.StartAgain]).
func Problem(e *oauth2.Error) *Text { return &Text{format: e.Description} }
