for (const button of document.querySelectorAll('details button')) {
	button.hidden = false
	button.onclick = () => {
		for (const box of button.closest('details').querySelectorAll('input:checked')) box.checked = false
	}
}
