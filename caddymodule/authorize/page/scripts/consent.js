// Keeps every checkbox equal to what the checkboxes below it allow. Without this script, the server shows the page again if they contradict.
(() => {
	const part = (element) => element && element.closest('li, .item');
	const boxOf = (part) => part.querySelector(':scope > label input');
	const listsOf = (part) => [...part.querySelectorAll(':scope > details > ul, :scope > ul')];
	const isEmpty = (list) => !list.querySelector(':scope > li > label input:checked');

	const setBelow = (part, checked) => {
		for (const box of part.querySelectorAll('ul input[type=checkbox]')) box.checked = checked;
	};
	const setAbove = (below, checked) => {
		for (let above = part(below.parentElement); above; above = part(above.parentElement)) {
			const allows = !listsOf(above).some(isEmpty);
			if (allows === checked) boxOf(above).checked = checked;
		}
	};
	const label = (details) => {
		const button = details.querySelector('button');
		button.dataset.uncheck ??= button.textContent;
		button.textContent = details.querySelector('input:checked') ? button.dataset.uncheck : button.dataset.check;
	};

	for (const details of document.querySelectorAll('.item details')) {
		const item = part(details), button = details.querySelector('button');
		const set = (checked) => {
			boxOf(item).checked = checked;
			setBelow(item, checked);
			label(details);
		};
		button.hidden = false;
		button.onclick = () => set(!details.querySelector('input:checked'));
		item.onchange = ({ target }) => {
			setBelow(part(target), target.checked);
			setAbove(part(target), target.checked);
			label(details);
		};
		if (!boxOf(item).checked) set(false);
	}
})();
