package page

import (
	"html/template"
	"testing"
	"time"

	"golang.org/x/text/language"
)

func TestPluralsOfALanguage(t *testing.T) {
	t.Parallel()
	french := &translation{tag: language.French, texts: map[string]forms{"%d apps": {"%d application", "%d applications"}}}
	for number, want := range map[int]string{0: "0 application", 1: "1 application", 2: "2 applications"} {
		if got := french.translate(Plural("%d app", "%d apps", number)); got != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
}

func TestTranslate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		text *Text
		want any
	}{
		{"plain", T("Sign in"), "Sign in"},
		{"percent sign without arguments", T("100 % sure"), "100 % sure"},
		{"markup", T("to <continue> to %s & %s", strong("<a>"), "<b>"), template.HTML("to &lt;continue&gt; to <strong>&lt;a&gt;</strong> &amp; &lt;b&gt;")},
		{"one", Plural("%d app", "%d apps", 1), "1 app"},
		{"more", Plural("%d app", "%d apps", 2), "2 apps"},
		{"none", Plural("%d app", "%d apps", 0), "0 apps"},
		{"wait, rounded up", T("in %s", 29100*time.Millisecond), "in 30 seconds"},
		{"wait of minutes", T("in %s", 61*time.Second), "in 2 minutes"},
		{"wait of a minute", T("in %s", time.Minute), "in a minute"},
		{"wait of a second", T("in %s", time.Second), "in a second"},
		{"list", And(T("read"), T("search"), T("create")), "read, search and create"},
		{"list of two", And(T("read"), T("search")), "read and search"},
		{"list of one", And(T("read")), "read"},
	}
	for _, tt := range tests {
		if got := english.translate(tt.text); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	if And() != nil {
		t.Error("an empty list is a text")
	}
}
