package page

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/text/language"
)

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
