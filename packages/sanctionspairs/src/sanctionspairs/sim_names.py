"""Names for SanctionsSim: native script from faker's locales, transliterations, and variants that lists write."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from functools import lru_cache

from faker import Faker
from normality import ascii_text

LOCALES: dict[str, tuple[str, str]] = {
    "ru": ("ru_RU", "ru"),
    "uk": ("uk_UA", "ua"),
    "ar": ("ar_SA", "sy"),
    "fa": ("fa_IR", "ir"),
    "el": ("el_GR", "gr"),
    "zh": ("zh_CN", "cn"),
    "ja": ("ja_JP", "jp"),
    "ko": ("ko_KR", "kp"),
    "he": ("he_IL", "il"),
    "hi": ("hi_IN", "in"),
    "th": ("th_TH", "th"),
    "ka": ("ka_GE", "ge"),
    "hy": ("hy_AM", "am"),
    "tr": ("tr_TR", "tr"),
    "de": ("de_DE", "de"),
    "fr": ("fr_FR", "fr"),
    "es": ("es_ES", "ve"),
    "pl": ("pl_PL", "pl"),
    "en": ("en_GB", "gb"),
}
"""Language: faker's locale, and the country of most of its records."""
NON_LATIN = ("ru", "uk", "ar", "fa", "el", "zh", "ja", "ko", "he", "hi", "th", "ka", "hy")
WEIGHTS = {"ru": 5, "uk": 3, "ar": 4, "fa": 3, "zh": 2, "ko": 1.5, "en": 3, "es": 2}
"""How often a language occurs, where not once."""
_PROVIDERS = [f"faker.providers.{name}" for name in ("address", "company", "person")]
FAMILY_FIRST = ("zh", "ja", "ko")

LEGAL_FORMS: dict[str, tuple[tuple[str, ...], ...]] = {
    "ru": (("ООО", "OOO", "LLC", "Limited Liability Company"), ("ЗАО", "ZAO", "CJSC"), ("АО", "AO", "JSC")),
    "uk": (("ТОВ", "TOV", "LLC"), ("ПАТ", "PAT", "PJSC")),
    "de": (("GmbH", "Gesellschaft mit beschränkter Haftung"), ("AG", "Aktiengesellschaft"), ("KG",)),
    "fr": (("SARL", "S.A.R.L."), ("SA", "S.A."), ("SAS",)),
    "es": (("S.A.", "SA", "Sociedad Anónima"), ("S.L.", "SL"), ("C.A.", "Compañía Anónima")),
    "pl": (("Sp. z o.o.", "Spółka z o.o."), ("S.A.", "SA")),
    "tr": (("A.Ş.", "Anonim Şirketi"), ("Ltd. Şti.", "Limited Şirketi")),
    "zh": (("有限公司", "Co., Ltd.", "Company Limited"), ("集团", "Group")),
    "ja": (("株式会社", "K.K.", "Co., Ltd."),),
    "en": (("Ltd", "Limited", "Ltd."), ("LLC", "L.L.C."), ("plc", "PLC"), ("Inc", "Inc.", "Incorporated")),
}
"""Spellings of one legal form, native first, by language; the others use the English ones."""
_WORDS = [
    "Alfa",
    "Baltic",
    "Caspian",
    "Delta",
    "Eastern",
    "Falcon",
    "Global",
    "Horizon",
    "Imperial",
    "Jupiter",
    "Kama",
    "Levant",
    "Meridian",
    "Northern",
    "Orion",
    "Pacific",
    "Quantum",
    "Riviera",
    "Silver",
    "Titan",
    "Ural",
    "Vector",
    "Western",
    "Zenith",
    "Atlas",
    "Breeze",
    "Crown",
    "Dynamo",
    "Everest",
    "Fortune",
    "Galaxy",
    "Harbour",
    "Iron",
    "Jade",
    "Kronos",
    "Lotus",
    "Mercury",
    "Neptune",
    "Oasis",
    "Phoenix",
    "Royal",
    "Saturn",
    "Trident",
    "Unity",
    "Volga",
    "Wave",
    "Amber",
    "Blue",
    "Coral",
]
_TRADES = [
    "Trading",
    "Shipping",
    "Holding",
    "Energy",
    "Petroleum",
    "Metals",
    "Logistics",
    "Construction",
    "Electronics",
    "Aviation",
    "Chemicals",
    "Finance",
    "Insurance",
    "Mining",
    "Engineering",
    "Telecom",
    "Textile",
    "Agro",
    "Marine",
    "Invest",
]
_VARIANTS = (
    (("kh", "h"), ("zh", "j"), ("y", "i"), ("yu", "iu"), ("ya", "ia")),
    (("ou", "u"), ("ee", "i"), ("dh", "d"), ("q", "k"), ("ei", "ey")),
    (("ov", "off"), ("ts", "c"), ("sch", "sh"), ("ks", "x"), ("j", "y")),
    (("mmad", "mad"), ("aa", "a"), ("oo", "u"), ("iy", "y"), ("h", "")),
)


@dataclass(frozen=True)
class Person:
    """A person's name in its own script and in Latin letters, part by part."""

    language: str
    first: str
    middle: str
    last: str
    gender: str

    def parts(self, native: bool) -> tuple[str, str, str]:
        """Return first, middle and last name, transliterated unless native."""
        given = (self.first, self.middle, self.last)
        if native:
            return given
        return romanise(given[0]), romanise(given[1]), romanise(given[2])


@lru_cache(maxsize=100_000)
def romanise(text: str) -> str:
    """Transliterate by ICU and capitalise as Latin names are."""
    plain = re.sub(r"[ʹʺ'`\"?]", "", ascii_text(text) or "")
    return " ".join(word if word.isupper() and len(word) < 5 else word[:1].upper() + word[1:] for word in plain.split())


@dataclass
class Pool:
    """What one language offers: drawn once from faker, so that equal names occur by chance as they do in life."""

    language: str
    male: list[str] = field(default_factory=list)
    female: list[str] = field(default_factory=list)
    last_male: list[str] = field(default_factory=list)
    last_female: list[str] = field(default_factory=list)
    cities: list[str] = field(default_factory=list)
    streets: list[str] = field(default_factory=list)
    companies: list[str] = field(default_factory=list)

    @property
    def country(self) -> str:
        """The country code of most records of this language."""
        return LOCALES[self.language][1]


@lru_cache(maxsize=64)
def make_pool(language: str, seed: int, size: int = 160) -> Pool:
    """Draw a language's pool from faker."""
    fake = Faker(LOCALES[language][0], providers=_PROVIDERS)
    fake.seed_instance(f"{seed}-{language}")

    def last(kind: str) -> str:
        return getattr(fake, f"last_name_{kind}", fake.last_name)()

    pool = Pool(language)
    for _ in range(size):
        pool.male.append(fake.first_name_male())
        pool.female.append(fake.first_name_female())
        pool.last_male.append(last("male"))
        pool.last_female.append(last("female"))
    for _ in range(size // 2):
        pool.cities.append(fake.city())
        pool.streets.append(fake.street_name())
        pool.companies.append(_bare_company(fake.company()))
    return pool


def _bare_company(name: str) -> str:
    """Drop the legal form that faker puts around a company's name: the simulation adds its own."""
    quoted = re.search(r"[«\"“](.+?)[»\"”]", name)
    text = quoted[1] if quoted else name
    text = re.sub(
        r"\b(Ltd|LLC|PLC|Inc|GmbH|AG|KGaA|KG|OHG|e\.V\.|S\.\w\.?\w?\.?|Sp\. z o\.o\.|San\.|Ş\w+\.?)(?=\W|$)", "", text
    )
    text = re.sub(
        r"(有限公司|株式会社|合同会社|有限会社|\(주\)|주식회사|유한회사|บจก\.|หจก\.|บมจ\.|ООО|ЗАО|ОАО|НПО)", "", text
    )
    return " ".join(text.replace(" and ", " & ").strip(" ,.&").split()) or name


def person(pool: Pool, rng: random.Random) -> Person:
    """Draw a person; Slavic and Arabic names carry a father's name in the middle more often."""
    gender = "female" if rng.random() < 0.25 else "male"
    first = rng.choice(pool.female if gender == "female" else pool.male)
    last = rng.choice(pool.last_female if gender == "female" else pool.last_male)
    share = 0.7 if pool.language in ("ru", "uk", "ar", "fa") else 0.25
    middle = rng.choice(pool.male) if rng.random() < share and pool.language not in FAMILY_FIRST else ""
    return Person(pool.language, first, middle, last, gender)


def company(pool: Pool, rng: random.Random) -> tuple[str, tuple[str, ...]]:
    """Draw a company's name without its form, and the spellings of its form."""
    forms = rng.choice(LEGAL_FORMS.get(pool.language, LEGAL_FORMS["en"]))
    if rng.random() < 0.5:
        name = f"{rng.choice(_WORDS)} {rng.choice(_TRADES)}"
    else:
        name = rng.choice(pool.companies)
    if rng.random() < 0.35:
        name = f"{rng.choice(_WORDS)} {name}" if rng.random() < 0.5 else f"{name} {rng.choice(_TRADES)}"
    return name, forms


def vessel(rng: random.Random) -> str:
    """Draw a ship's name."""
    kinds = ("Star", "Pearl", "Sea", "Spirit", "Glory", "Queen", "Wind", "Trader")
    return f"{rng.choice(_WORDS)} {rng.choice(kinds)}".upper()


def imo_number(rng: random.Random) -> str:
    r"""Draw a ship's IMO number: six digits and the check digit :math:`\\sum_i (8 - i) d_i \\bmod 10`."""
    digits = [rng.randint(8, 9), *(rng.randint(0, 9) for _ in range(5))]
    check = sum(weight * digit for weight, digit in zip(range(7, 1, -1), digits, strict=True)) % 10
    return "IMO" + "".join(map(str, digits)) + str(check)


def respell(word: str, scheme: int) -> str:
    """Apply one of four transliteration habits to a Latin word."""
    low = word.lower()
    for old, new in _VARIANTS[scheme % len(_VARIANTS)]:
        if old in low and (new or len(low) > 5):
            low = low.replace(old, new, 1)
            break
    return low.capitalize() if word[:1].isupper() else low


def typo(text: str, rng: random.Random) -> str:
    """Swap, drop or double one letter."""
    if len(text) < 4:
        return text
    place = rng.randrange(1, len(text) - 1)
    kind = rng.randrange(3)
    if kind == 0:
        return text[:place] + text[place + 1] + text[place] + text[place + 2 :]
    return text[:place] + text[place + 1 :] if kind == 1 else text[:place] + text[place] + text[place:]
